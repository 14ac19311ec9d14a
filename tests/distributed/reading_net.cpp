// A model whose constructor reads its weights: they can't be computed later, one by one.
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>

#include <memory>

#include "framework/nn/model.h"
#include "framework/recipe/library.h"

namespace {

class ReadingNet final : public brim::nn::Model {
 public:
  ReadingNet(int64_t inputs, int64_t classes) {
    const at::NoGradGuard no_grad;
    in_ = register_parameter("in", at::empty({kWidth, inputs}).normal_());
    in_.div_(in_.norm().item<double>());
    out_ = register_parameter("out", at::empty({classes, kWidth}).normal_(0, 0.1));
  }
  at::Tensor forward(const at::Tensor& images) override {
    return at::linear(at::linear(images.flatten(1), in_).relu(), out_);
  }

 private:
  static constexpr int64_t kWidth = 400;  // 64 pixels of float32 are 100 KiB
  at::Tensor in_, out_;
};

struct ReadingConfig final : brim::nn::ModelConfig {
  void fields(brim::recipe::Fields& /*f*/) override {}
  std::shared_ptr<brim::nn::Model> build(const brim::nn::ModelShape& shape) const override {
    return std::make_shared<ReadingNet>(shape.channels * shape.height * shape.width, shape.classes);
  }
};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::nn::ModelConfig>().add<ReadingConfig>("reading_net",
                                                                     "reads its weights");
}
