#include "framework/nn/convolution.h"

#include <array>
#include <variant>

#include "framework/nn/fused/norm_convolution.h"

namespace brim::nn {
namespace {

using Sides = std::array<int64_t, 2>;

Sides sides(const torch::ExpandingArray<2>& each) { return *each; }

}  // namespace

std::optional<ConvolutionSteps> Conv2dImpl::steps() const {
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const bool pads_zeros =
      padding != nullptr && std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode());
  if (!is_fused() || !pads_zeros || options.bias()) return std::nullopt;
  return ConvolutionSteps{.stride = sides(options.stride()),
                          .padding = sides(*padding),
                          .dilation = sides(options.dilation())};
}

at::Tensor Conv2dImpl::forward(const at::Tensor& x) {
  const auto steps = this->steps();
  if (!steps || !has_fused_convolution(x, weight, *steps, options.groups())) {
    return torch::nn::Conv2dImpl::forward(x);
  }
  return fused_convolution(x, weight, *steps, options.groups());
}

at::Tensor Conv2dImpl::forward_after(BatchNorm2d& norm, const at::Tensor& x) {
  const auto steps = this->steps();
  if (steps && fits_norm_convolution(x, weight)) {
    if (const auto momentum = norm->begin_fused_pass(x)) {
      return fused_norm_convolution(x, norm->state(), *momentum, weight, *steps, options.groups());
    }
  }
  return forward(norm->forward_relu(x));
}

}  // namespace brim::nn
