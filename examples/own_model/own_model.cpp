// A model of your own: a plain torch::nn::Module, and the keys that a recipe gives it.

#include <brim/nn/wrap.h>
#include <brim/recipe/library.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace {

struct OwnNet : torch::nn::Module {
  OwnNet(int64_t channels, int64_t width, int64_t classes)
      : conv(torch::nn::Conv2dOptions(channels, width, 3).padding(1)), head(width * 16, classes) {
    register_module("conv", conv);
    register_module("head", head);
  }
  /// Images [N, C, H, W] to logits [N, classes].
  at::Tensor forward(const at::Tensor& images) {
    return head(at::adaptive_avg_pool2d(conv(images).relu(), {4, 4}).flatten(1));
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear head;
};

struct OwnConfig : brim::nn::ModelConfig {
  int64_t width = 16;
  void fields(brim::recipe::Fields& f) override {
    f.value("width", width, "channels of the convolution", brim::recipe::at_least(1));
  }
  std::shared_ptr<brim::nn::Model> build(const brim::nn::ModelShape& shape) const override {
    return brim::nn::wrap(std::make_shared<OwnNet>(shape.channels, width, shape.classes), shape);
  }
};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::nn::ModelConfig>().add<OwnConfig>("own_net", "one convolution");
}
