// The order in which modules are made and initialised decides which random numbers each weight
// gets; it follows torchvision/models/inception.py.
#include "models/inception/inception.h"

#include <ATen/ATen.h>

#include "framework/nn/init.h"
#include "framework/nn/linear.h"
#include "models/inception/blocks.h"

namespace brim::models::inception {
namespace {

class InceptionV3 : public nn::Model {
 public:
  InceptionV3(const InceptionConfig& config, const nn::ModelShape& shape) : config_(config) {
    stem_[0] = add_unit("Conv2d_1a_3x3", shape.channels, 32, {.kernel = {3, 3}, .stride = 2});
    stem_[1] = add_unit("Conv2d_2a_3x3", 32, 32, {.kernel = {3, 3}});
    stem_[2] = add_unit("Conv2d_2b_3x3", 32, 64, {.kernel = {3, 3}, .padding = {1, 1}});
    maxpool1_ = register_module("maxpool1", nn::MaxPool2d(kHalvingPool));
    stem_[3] = add_unit("Conv2d_3b_1x1", 64, 80, {});
    stem_[4] = add_unit("Conv2d_4a_3x3", 80, 192, {.kernel = {3, 3}});
    maxpool2_ = register_module("maxpool2", nn::MaxPool2d(kHalvingPool));
    add_mixed(before_, "Mixed_5b", make_a(192, 32));
    add_mixed(before_, "Mixed_5c", make_a(256, 64));
    add_mixed(before_, "Mixed_5d", make_a(288, 64));
    add_mixed(before_, "Mixed_6a", make_b(288));
    add_mixed(before_, "Mixed_6b", make_c(768, 128));
    add_mixed(before_, "Mixed_6c", make_c(768, 160));
    add_mixed(before_, "Mixed_6d", make_c(768, 160));
    add_mixed(before_, "Mixed_6e", make_c(768, 192));
    if (config.auxiliary) {
      auxiliary_ = register_module("AuxLogits", std::make_shared<Auxiliary>(shape.classes));
    }
    add_mixed(after_, "Mixed_7a", make_d(768));
    add_mixed(after_, "Mixed_7b", make_e(1280));
    add_mixed(after_, "Mixed_7c", make_e(2048));
    fc_ = register_module("fc", nn::Linear(2048, shape.classes));
    initialise();
  }

  at::Tensor forward(const at::Tensor& images) override { return classify(features(images)); }

  std::vector<nn::WeightedLogits> training_logits(const at::Tensor& images) override {
    const at::Tensor x = features(images);
    std::vector<nn::WeightedLogits> result = {{classify(x), 1.0}};
    if (auxiliary_) result.push_back({auxiliary_->forward(x), config_.auxiliary_weight});
    return result;
  }

 private:
  UnitPointer add_unit(const std::string& name, int64_t inputs, int64_t outputs,
                       const UnitOptions& options) {
    return register_module(name, std::make_shared<Unit>(inputs, outputs, options));
  }
  void add_mixed(std::vector<MixedPointer>& row, const std::string& name, MixedPointer mixed) {
    row.push_back(register_module(name, std::move(mixed)));
  }

  /// Images [N, channels, 299, 299] to [N, 768, 17, 17].
  at::Tensor features(const at::Tensor& images) {
    at::Tensor x = stem_[2]->forward(stem_[1]->forward(stem_[0]->forward(images)));
    x = maxpool1_->forward(x);
    x = stem_[4]->forward(stem_[3]->forward(x));
    x = maxpool2_->forward(x);
    for (const MixedPointer& mixed : before_) x = mixed->run(x);
    return x;
  }

  at::Tensor classify(at::Tensor x) {
    for (const MixedPointer& mixed : after_) x = mixed->run(x);
    x = at::dropout(at::adaptive_avg_pool2d(x, {1, 1}), config_.dropout, is_training());
    return fc_->forward(x.flatten(1));
  }

  // Batch norms start at weight 1 and bias 0 already, and biases keep LibTorch's default.
  void initialise() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<torch::nn::Conv2d>()) nn::truncated_normal_(conv->weight, 0.1);
      if (auto* linear = module->as<nn::Linear>()) {
        const bool is_auxiliary = auxiliary_ && linear == auxiliary_->fc().get();
        nn::truncated_normal_(linear->weight, is_auxiliary ? 0.001 : 0.1);
      }
    }
  }

  InceptionConfig config_;
  std::array<UnitPointer, 5> stem_;
  nn::MaxPool2d maxpool1_{nullptr}, maxpool2_{nullptr};  // in the stem
  std::vector<MixedPointer> before_, after_;             // the auxiliary head
  std::shared_ptr<Auxiliary> auxiliary_;
  nn::Linear fc_{nullptr};
};

}  // namespace

void InceptionConfig::fields(recipe::Fields& f) {
  f.value("auxiliary", auxiliary, "whether to train the auxiliary head too");
  f.value("auxiliary_weight", auxiliary_weight, "how much that head's loss counts",
          recipe::at_least(0));
  f.value("dropout", dropout, "probability of dropping a feature before the last layer",
          recipe::between_open_high(0, 1));
}

std::shared_ptr<nn::Model> InceptionConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape("inception_v3", shape, auxiliary ? 299 : 75);
  return std::make_shared<InceptionV3>(*this, shape);
}

std::vector<nn::WeightNames> InceptionConfig::weight_names() const {
  return {{"torchvision", {}}, {"timm", {}}};
}

}  // namespace brim::models::inception
