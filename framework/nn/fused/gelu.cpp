// The way from the models to the operators, and their gradient.
#include "framework/nn/fused/gelu.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "framework/nn/fused/gelu_cpu.h"
#include "framework/nn/fused/linear.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("bias_gelu(Tensor x, Tensor bias, bool tanh) -> Tensor");
  library.def(
      "bias_gelu_backward(Tensor gradient, Tensor x, Tensor bias, bool tanh) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("bias_gelu", cpu::bias_gelu);
  library.impl("bias_gelu_backward", cpu::bias_gelu_backward);
}

at::Tensor bias_gelu_shape(const at::Tensor& x, const at::Tensor& /*bias*/, bool /*tanh*/) {
  return at::empty_like(x);
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward_shapes(const at::Tensor& /*gradient*/,
                                                             const at::Tensor& x,
                                                             const at::Tensor& bias,
                                                             bool /*tanh*/) {
  return {at::empty_like(x), at::empty_like(bias)};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("bias_gelu", bias_gelu_shape);
  library.impl("bias_gelu_backward", bias_gelu_backward_shapes);
}

using BiasGeluForward = at::Tensor(const at::Tensor&, const at::Tensor&, bool);
using BiasGeluBackward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                            const at::Tensor&, bool);

class FusedBiasGelu : public Function<FusedBiasGelu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            bool tanh) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto operation = find_operator<BiasGeluForward>("brim::bias_gelu");
    const at::Tensor dense = x.contiguous();
    context->save_for_backward({dense, bias});
    context->saved_data["tanh"] = tanh;
    return operation.call(dense, bias, tanh);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("bias and GELU");
    const auto saved = context->get_saved_variables();
    static const auto operation = find_operator<BiasGeluBackward>("brim::bias_gelu_backward");
    auto [x_gradient, bias_gradient] =
        operation.call(gradients[0].to(saved[0].scalar_type()).contiguous(), saved[0], saved[1],
                       context->saved_data["tanh"].toBool());
    return {x_gradient, bias_gradient, {}};
  }
};

}  // namespace

bool has_fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  return x.dim() > 0 && x.numel() > 0 && has_fused_kernels(x) && bias.dim() == 1 &&
         bias.size(0) == x.size(-1) && bias.scalar_type() == opmath_type(x) &&
         bias.is_contiguous() && bias.device() == x.device();
}

at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form) {
  return FusedBiasGelu::apply(x, bias, form == Gelu::kTanh);
}

at::Tensor bias_gelu(const at::Tensor& product, const at::Tensor& bias, Gelu form, Fused when,
                     bool is_training) {
  const auto plain = [form](const at::Tensor& x, const at::Tensor& added) {
    return at::gelu(x + added.to(x.scalar_type()), form == Gelu::kTanh ? "tanh" : "none");
  };
  const bool is_fused =
      when != Fused::kNever && has_fused_bias_gelu(product, bias) &&
      takes_fused(
          when,
          {.name = form == Gelu::kTanh ? "bias, GELU (tanh)" : "bias, GELU (erf)",
           .batch = {product},
           .parameters = {bias},
           .is_training = is_training},
          [&](const auto& in, const auto& of) -> variable_list {
            return {fused_bias_gelu(in[0], of[0], form)};
          },
          [&](const auto& in, const auto& of) -> variable_list { return {plain(in[0], of[0])}; });
  return is_fused ? fused_bias_gelu(product, bias, form) : plain(product, bias);
}

at::Tensor linear_gelu(const Linear& layer, const at::Tensor& x, Fused when) {
  const at::Tensor &weight = layer->weight, &bias = layer->bias;
  const bool is_training = layer->is_training();
  // Upcast products add the bias before they round.
  const bool has_fused_form = when != Fused::kNever && x.numel() > 0 && has_fused_kernels(x) &&
                              !(x.is_cpu() && type_of_product(x) == at::kHalf) &&
                              !has_fused_linear(x, weight) && bias.defined() &&
                              bias.scalar_type() == opmath_type(x);
  if (has_fused_form) {
    const LinearForm form = linear_form(x, weight, {}, when, is_training);
    const auto fused = [form](const at::Tensor& in, const at::Tensor& by, const at::Tensor& added) {
      return fused_bias_gelu(linear_in(form, in, by, {}), added, Gelu::kErf);
    };
    const bool is_fused = takes_fused(
        when,
        {.name = "linear, GELU (erf)",
         .batch = {x},
         .parameters = {weight, bias},
         .is_training = is_training},
        [&](const auto& in, const auto& of) -> variable_list {
          return {fused(in[0], of[0], of[1])};
        },
        [&](const auto& in, const auto& of) -> variable_list {
          return {at::gelu(at::linear(in[0], of[0], of[1]))};
        });
    if (is_fused) return fused(x, weight, bias);
  }
  return at::gelu(linear(x, weight, bias, when, is_training));
}

}  // namespace brim::nn
