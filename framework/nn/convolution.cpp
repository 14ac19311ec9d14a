#include "framework/nn/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "framework/nn/fused/block_linear.h"
#include "framework/nn/fused/depthwise.h"
#include "framework/nn/fused/norm_convolution.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/linear.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using Sides = std::array<int64_t, 2>;

Sides sides(const torch::ExpandingArray<2>& each) { return *each; }

/// Whether each pixel of x [N, C, H, W] belongs to one place of the kernel.
bool has_separate_patches(const at::Tensor& x, const at::Tensor& weight,
                          const ConvolutionSteps& steps) {
  const Sides kernel = {weight.size(2), weight.size(3)};
  return x.dim() == 4 && x.numel() > 0 && x.size(1) == weight.size(1) && kernel == steps.stride &&
         kernel != Sides{1, 1} && steps.padding == Sides{0, 0} && steps.dilation == Sides{1, 1} &&
         x.size(2) % kernel[0] == 0 && x.size(3) % kernel[1] == 0;
}

/// at::conv2d with has_separate_patches(), as a linear layer of each patch: [N, O, H/KH, W/KW],
/// channels_last.
at::Tensor linear_of_patches(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
  const int64_t height = weight.size(2), width = weight.size(3);
  const int64_t rows = x.size(2) / height, columns = x.size(3) / width;
  const at::Tensor patches = lowered(x)
                                 .permute({0, 2, 3, 1})
                                 .reshape({x.size(0), rows, height, columns, width, x.size(1)})
                                 .transpose(2, 3)
                                 .reshape({x.size(0) * rows * columns, -1});
  const at::Tensor matrix = weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1});
  const LinearForm form =
      has_block_linear(patches, matrix, bias) ? LinearForm::kBlocks : LinearForm::kPlain;
  return linear_in(form, patches, matrix, bias)
      .view({x.size(0), rows, columns, weight.size(0)})
      .permute({0, 3, 1, 2});
}

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
  const ConvolutionForm other = has_weight_gradient(x, weight, steps, groups)
                                    ? ConvolutionForm::kWeightGradient
                                    : ConvolutionForm::kProduct;
  const std::string name = fmt::format(
      "convolution{} as a product, stride {} padding {} dilation {}{}{}",
      other == ConvolutionForm::kProduct ? "" : " with its weight's gradient",
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
  const bool takes_other = takes_fused(
      fused(), operation,
      [&](const Tensors& in, const Tensors& of) {
        if (is_branch) return with_reader(fused_branch(in[0], of[0], steps));
        return by(in[0], of[0], other);
      },
      [&](const Tensors& in, const Tensors& of) {
        if (is_upcast) return by(in[0], of[0], ConvolutionForm::kDirect);
        const at::Tensor y =
            at::conv2d(in[0], of[0], {}, steps.stride, steps.padding, steps.dilation, groups);
        return is_branch ? with_reader({y, in[0]}) : Tensors{y};
      });
  return takes_other ? other : ConvolutionForm::kDirect;
}

bool Conv2dImpl::takes_depthwise(const at::Tensor& x, const ConvolutionSteps& steps) const {
  return options.groups() > 1 &&
         takes_fused_depthwise_convolution(x, weight, bias, steps, options.groups(), fused(),
                                           is_training());
}

bool Conv2dImpl::takes_patches(const at::Tensor& x, const ConvolutionSteps& steps) const {
  if (!x.is_cpu() || options.groups() != 1 || !has_separate_patches(x, weight, steps) ||
      has_upcast_convolution(x, weight)) {
    return false;
  }
  using Tensors = std::vector<at::Tensor>;
  const std::string name =
      fmt::format("convolution of separate patches, {}", fmt::join(steps.stride, "×"));
  return takes_fused(
      fused(),
      {.name = name,
       .batch = {x},
       .parameters = {weight, bias},
       .is_training = is_training(),
       .is_fused_otherwise = false},
      [](const Tensors& in, const Tensors& of) {
        return Tensors{linear_of_patches(in[0], of[0], of[1])};
      },
      [&](const Tensors& in, const Tensors& of) {
        return Tensors{at::conv2d(in[0], of[0], of[1], steps.stride)};
      });
}

at::Tensor Conv2dImpl::forward(const at::Tensor& x) {
  const auto steps = this->steps();
  if (steps && takes_depthwise(x, *steps)) {
    return fused_depthwise_convolution(x, weight, bias, *steps);
  }
  if (steps && takes_patches(x, *steps)) return linear_of_patches(x, weight, bias);
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
