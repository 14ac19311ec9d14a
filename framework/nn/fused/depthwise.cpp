// The way from the layers to the operators, and their gradient.
#include "framework/nn/fused/depthwise.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/depthwise_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "depthwise_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding) "
      "-> "
      "Tensor");
  library.def(
      "depthwise_convolution_backward(Tensor gradient, Tensor x, Tensor weight, int[] stride, "
      "int[] padding, bool[3] wanted) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("depthwise_convolution", cpu::depthwise_convolution);
  library.impl("depthwise_convolution_backward", cpu::depthwise_convolution_backward);
}

at::Tensor depthwise_convolution_shape(const at::Tensor& x, const at::Tensor& weight,
                                       const MaybeTensor& /*bias*/, at::IntArrayRef stride,
                                       at::IntArrayRef padding) {
  const auto places = [&](int64_t side) {
    return (x.size(2 + side) + 2 * padding[side] - weight.size(2 + side)) / stride[side] + 1;
  };
  return at::empty({x.size(0), x.size(1), places(0), places(1)},
                   x.options().memory_format(at::MemoryFormat::ChannelsLast));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> depthwise_convolution_backward_shapes(
    const at::Tensor& /*gradient*/, const at::Tensor& x, const at::Tensor& weight,
    at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/, std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : at::Tensor(),
          wanted[1] ? at::empty_like(weight) : at::Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("depthwise_convolution", depthwise_convolution_shape);
  library.impl("depthwise_convolution_backward", depthwise_convolution_backward_shapes);
}

using DepthwiseForward = at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&,
                                    at::IntArrayRef, at::IntArrayRef);
using DepthwiseBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef,
    std::array<bool, 3>);

class FusedDepthwiseConvolution : public Function<FusedDepthwiseConvolution> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias, const ConvolutionSteps& steps) {
    const ForwardPass pass;
    static const auto operation = find_operator<DepthwiseForward>("brim::depthwise_convolution");
    context->save_for_backward({x, weight});
    context->saved_data["steps"] = to_list(steps);
    context->saved_data["has_bias"] = bias.has_value();
    return operation.call(x, weight, bias, steps.stride, steps.padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("depthwise convolution");
    static const auto operation =
        find_operator<DepthwiseBackward>("brim::depthwise_convolution_backward");
    const auto saved = context->get_saved_variables();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const ConvolutionSteps steps = steps_of(context->saved_data["steps"].toIntVector());
    const at::Tensor gradient =
        gradients[0].to(saved[0].scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
    auto [of_x, of_weight, of_bias] =
        operation.call(gradient, saved[0], saved[1], steps.stride, steps.padding,
                       {context->needs_input_grad(0), context->needs_input_grad(1),
                        has_bias && context->needs_input_grad(2)});
    return {of_x, of_weight, of_bias, {}};
  }
};

}  // namespace

bool has_fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                     const at::Tensor& bias, const ConvolutionSteps& steps,
                                     int64_t groups) {
  const at::ScalarType type = type_of_product(x);
  if (!x.is_cpu() || x.dim() != 4 || x.numel() == 0 || groups != x.size(1) ||
      weight.size(0) != groups || !has_fused_kernels(x) || type == at::kHalf ||
      !x.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    return false;
  }
  const at::ScalarType wide = opmath_type(x);
  if (weight.scalar_type() != wide || (bias.defined() && bias.scalar_type() != wide)) return false;
  for (const int side : {0, 1}) {
    const int64_t kernel = weight.size(2 + side);
    if (steps.dilation[side] != 1 || steps.stride[side] < 1 || steps.padding[side] < 0 ||
        steps.padding[side] >= kernel || x.size(2 + side) + 2 * steps.padding[side] < kernel) {
      return false;
    }
  }
  const int64_t width = weight.size(3);
  return weight.size(2) <= 7 && (width == 3 || width == 5 || width == 7);
}

at::Tensor fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias, const ConvolutionSteps& steps) {
  return FusedDepthwiseConvolution::apply(lowered(x), weight, maybe(bias), steps);
}

bool takes_fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias, const ConvolutionSteps& steps,
                                       int64_t groups, Fused when, bool is_training) {
  if (when == Fused::kNever || !has_fused_depthwise_convolution(x, weight, bias, steps, groups))
    return false;
  const std::string name = fmt::format("depthwise convolution, stride {} padding {}",
                                       fmt::join(steps.stride, "×"), fmt::join(steps.padding, "×"));
  return takes_fused(
      when, {.name = name, .batch = {x}, .parameters = {weight, bias}, .is_training = is_training},
      [&](const auto& in, const auto& of) -> variable_list {
        return {fused_depthwise_convolution(in[0], of[0], of[1], steps)};
      },
      [&](const auto& in, const auto& of) -> variable_list {
        return {
            at::conv2d(in[0], of[0], of[1], steps.stride, steps.padding, steps.dilation, groups)};
      });
}

}  // namespace brim::nn
