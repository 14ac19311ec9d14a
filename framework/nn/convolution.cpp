#include "framework/nn/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <variant>

#include "framework/nn/fused/depthwise.h"
#include "framework/nn/fused/norm_convolution.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using Sides = std::array<int64_t, 2>;

Sides sides(const torch::ExpandingArray<2>& each) { return *each; }

}  // namespace

std::optional<ConvolutionSteps> Conv2dImpl::steps() const {
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const bool pads_zeros =
      padding != nullptr && std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode());
  if (!is_fused() || !pads_zeros) return std::nullopt;
  return ConvolutionSteps{.stride = sides(options.stride()),
                          .padding = sides(*padding),
                          .dilation = sides(options.dilation())};
}

ConvolutionForm Conv2dImpl::form(const at::Tensor& x, const ConvolutionSteps& steps,
                                 bool is_branch) const {
  const int64_t groups = options.groups();
  if (!has_convolution_product(x, weight, steps, groups)) return ConvolutionForm::kDirect;
  const bool is_upcast = has_upcast_convolution(x, weight);
  const std::string name = fmt::format(
      "convolution as a product, stride {} padding {} dilation {}{}{}",
      fmt::join(steps.stride, "×"), fmt::join(steps.padding, "×"), fmt::join(steps.dilation, "×"),
      is_upcast ? ", upcast" : "", is_branch ? ", branch" : "");
  const TwoForms operation = {.name = name,
                              .batch = {x},
                              .parameters = {weight},
                              .is_training = is_training(),
                              .is_fused_otherwise = false};
  using Tensors = std::vector<at::Tensor>;
  const auto by = [&](const at::Tensor& in, const at::Tensor& of, ConvolutionForm form) {
    return Tensors{fused_convolution(in, of, steps, groups, form)};
  };
  // Times 1, the other reader's gradient is a tensor of its own, as in a step.
  const auto with_reader = [](const Branch& branch) { return Tensors{branch.y, branch.x * 1}; };
  const bool is_product = takes_fused(
      fused(), operation,
      [&](const Tensors& in, const Tensors& of) {
        if (is_branch) return with_reader(fused_branch(in[0], of[0], steps));
        return by(in[0], of[0], ConvolutionForm::kProduct);
      },
      [&](const Tensors& in, const Tensors& of) {
        if (is_upcast) return by(in[0], of[0], ConvolutionForm::kDirect);
        const at::Tensor y =
            at::conv2d(in[0], of[0], {}, steps.stride, steps.padding, steps.dilation, groups);
        return is_branch ? with_reader({y, in[0]}) : Tensors{y};
      });
  return is_product ? ConvolutionForm::kProduct : ConvolutionForm::kDirect;
}

bool Conv2dImpl::takes_depthwise(const at::Tensor& x, const ConvolutionSteps& steps) const {
  return options.groups() > 1 &&
         takes_fused_depthwise_convolution(x, weight, bias, steps, options.groups(), fused(),
                                           is_training());
}

at::Tensor Conv2dImpl::forward(const at::Tensor& x) {
  const auto steps = this->steps();
  if (steps && takes_depthwise(x, *steps)) {
    return fused_depthwise_convolution(x, weight, bias, *steps);
  }
  if (!steps || options.bias()) return torch::nn::Conv2dImpl::forward(x);
  const ConvolutionForm form = this->form(x, *steps, /*is_branch=*/false);
  if (form == ConvolutionForm::kDirect && !has_upcast_convolution(x, weight)) {
    return torch::nn::Conv2dImpl::forward(x);
  }
  return fused_convolution(x, weight, *steps, options.groups(), form);
}

Branch Conv2dImpl::forward_branch(const at::Tensor& x) {
  const auto steps = this->steps();
  // A recomputed block's first pass has no gradients and takes the form of its second one.
  const bool is_first_pass = is_training() && !at::GradMode::is_enabled();
  const bool is_branch = steps && !options.bias() && options.groups() == 1 &&
                         (is_first_pass || x.requires_grad()) && fits_branch(x, weight, *steps) &&
                         form(x, *steps, /*is_branch=*/true) == ConvolutionForm::kProduct;
  if (!is_branch) return {forward(x), is_fused() && x.is_cuda() ? for_other_reader(x) : x};
  if (is_first_pass) {
    return {fused_convolution(x, weight, *steps, /*groups=*/1, ConvolutionForm::kProduct), x};
  }
  return fused_branch(x, weight, *steps);
}

at::Tensor Conv2dImpl::forward_after(BatchNorm2d& norm, const at::Tensor& x) {
  const auto steps = this->steps();
  if (steps && !options.bias() && fits_norm_convolution(x, weight) && !takes_depthwise(x, *steps)) {
    if (const auto momentum = norm->begin_fused_pass(x, {}, /*relu=*/true)) {
      return fused_norm_convolution(x, norm->state(), *momentum, weight, *steps, options.groups(),
                                    form(x, *steps, /*is_branch=*/false));
    }
  }
  return forward(norm->forward_relu(x));
}

}  // namespace brim::nn
