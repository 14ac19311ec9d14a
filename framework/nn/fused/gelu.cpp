// The way from the models to the operators, and their gradient.
#include "framework/nn/fused/gelu.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "framework/nn/fused/gelu_cpu.h"
#include "framework/nn/fused/operator.h"

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

TORCH_LIBRARY_IMPL(brim, Meta, library) { library.impl("bias_gelu", bias_gelu_shape); }

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

at::Tensor bias_gelu(const at::Tensor& product, const at::Tensor& bias, Gelu form) {
  if (has_fused_bias_gelu(product, bias)) return fused_bias_gelu(product, bias, form);
  return at::gelu(product + bias, form == Gelu::kTanh ? "tanh" : "none");
}

at::Tensor linear_gelu(const Linear& layer, const at::Tensor& x, bool fused) {
  // On the CPU LibTorch's is as fast, and faster for large matrices of bfloat16.
  if (!fused || x.is_cpu())
    return at::gelu(linear(x, layer->weight, layer->bias, layer->is_fused()));
  return bias_gelu(at::linear(x, layer->weight), layer->bias, Gelu::kErf);
}

}  // namespace brim::nn
