// A task of your own: what is learned, and by which metrics it is judged.

#include <ATen/ATen.h>
#include <brim/recipe/library.h>
#include <brim/train/tasks/task.h>

namespace {

using brim::data::DeviceBatch;
using brim::nn::Model;

/// Classes by margin: the right logit is to be larger than each other one by this much.
class Margin final : public brim::train::Task {
 public:
  explicit Margin(double margin) : margin_(margin) {}

  at::Tensor loss(Model& model, const DeviceBatch& batch) const override {
    const at::Tensor logits = model.forward(batch.inputs).to(at::kFloat);  // [N, classes]
    if (batch.labels.numel() == 0) return logits.sum();                    // a rank without samples
    return at::multi_margin_loss(logits, batch.labels, /*p=*/1, margin_);
  }
  /// The losses, the hits and the samples of one batch.
  at::Tensor evaluation_sums(Model& model, const DeviceBatch& batch) const override {
    const at::Tensor logits = model.forward(batch.inputs).to(at::kFloat);
    const at::Tensor losses = at::multi_margin_loss(logits, batch.labels, 1, margin_, {}, 0);
    const at::Tensor hits = logits.argmax(1) == batch.labels;
    return at::stack({losses.sum(), hits.sum(), at::ones_like(losses).sum()}).to(at::kDouble);
  }
  brim::train::Metrics metrics(const at::Tensor& sums) const override {
    const double* sum = sums.const_data_ptr<double>();
    return {{"loss", sum[0] / sum[2]}, {"top1", 100 * sum[1] / sum[2]}};
  }
  brim::train::BestBy best_by() const override { return {.metric = "top1"}; }

 private:
  double margin_;
};

struct MarginConfig : brim::train::TaskConfig {
  double margin = 1;
  void fields(brim::recipe::Fields& f) override {
    f.value("margin", margin, "by how much the right logit is to lead", brim::recipe::above(0));
  }
  bool takes(brim::nn::InputKind kind) const override {
    return kind == brim::nn::InputKind::kImages;
  }
  std::unique_ptr<brim::train::Task> build(
      const brim::train::TaskOptions& /*options*/) const override {
    return std::make_unique<Margin>(margin);
  }
};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::train::TaskConfig>().add<MarginConfig>("margin", "by margin");
}
