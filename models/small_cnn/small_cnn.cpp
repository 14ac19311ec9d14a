#include "models/small_cnn/small_cnn.h"

#include <ATen/ops/adaptive_avg_pool2d.h>

#include "framework/nn/batch_norm.h"
#include "framework/nn/convolution.h"
#include "framework/nn/linear.h"
#include "framework/nn/sequence.h"

namespace brim::models::small_cnn {
namespace {

nn::Conv2d convolution(int64_t inputs, int64_t outputs, int64_t stride) {
  return nn::Conv2d(
      torch::nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1).bias(false));
}

class SmallCnn : public nn::Sequence {
 public:
  SmallCnn(int64_t channels, int64_t width, int64_t classes) {
    conv1_ = register_module("conv1", convolution(channels, width, 1));
    bn1_ = register_module("bn1", nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", convolution(width, 2 * width, 2));
    bn2_ = register_module("bn2", nn::BatchNorm2d(2 * width));
    conv3_ = register_module("conv3", convolution(2 * width, 4 * width, 2));
    bn3_ = register_module("bn3", nn::BatchNorm2d(4 * width));
    fc_ = register_module("fc", nn::Linear(4 * width, classes));
    add_part("conv1", {"conv1"},
             [this](const at::Tensor& images) { return conv1_->forward(images); });
    add_part("conv2", {"bn1", "conv2"},
             [this](const at::Tensor& x) { return conv2_->forward_after(bn1_, x); });
    add_part("conv3", {"bn2", "conv3"},
             [this](const at::Tensor& x) { return conv3_->forward_after(bn2_, x); });
    add_part("head", {"bn3", "fc"}, [this](const at::Tensor& x) {
      return fc_->forward(at::adaptive_avg_pool2d(bn3_->forward_relu(x), {1, 1}).flatten(1));
    });
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  nn::Linear fc_{nullptr};
};

}  // namespace

void SmallCnnConfig::fields(recipe::Fields& f) {
  f.value("width", width, "channels of the first stage; the next two have twice and four times it",
          recipe::between(1, 4096));
}

std::shared_ptr<nn::Model> SmallCnnConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape("small_cnn", shape, 4);  // two of the stages halve the image
  return std::make_shared<SmallCnn>(shape.channels, width, shape.classes);
}

}  // namespace brim::models::small_cnn
