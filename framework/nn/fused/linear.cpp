#include "framework/nn/fused/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "framework/nn/fused/operator.h"
#include "framework/nn/fused/upcast.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

class FusedLinear : public Function<FusedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias) {
    const ForwardPass pass;
    const at::Tensor by = factor(weight, x);
    context->save_for_backward({x, by});
    context->saved_data["has_bias"] = bias.has_value();
    const at::Tensor rows = rows_of(x, by.scalar_type());
    return laid_as(x, bias ? at::addmm(factor(*bias, x), rows, by.t()) : rows.mm(by.t()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &by = saved[1];
    const at::ScalarType type = by.scalar_type();
    const at::Tensor gradient = rows_of(gradients[0], type);
    at::Tensor of_x, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_x = laid_as(x, gradient.mm(by));
    if (context->needs_input_grad(1)) {  // in the weight's memory order
      const at::Tensor rows = rows_of(x, type);
      of_weight = by.is_contiguous() ? gradient.t().mm(rows) : rows.t().mm(gradient).t();
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      of_bias = gradient.sum(0);
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

bool has_fused_linear(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType type = type_of_product(x);
  return x.dim() > 0 && x.numel() > 0 && weight.numel() > 0 && type == type_of_product(weight) &&
         upcasts_matmul(x, type);
}

at::Tensor fused_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return FusedLinear::apply(lowered(x), weight, maybe(bias));
}

}  // namespace brim::nn
