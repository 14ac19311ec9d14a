#include "framework/nn/fused/norm_convolution.h"

#include <torch/csrc/autograd/custom_function.h>

#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

class FusedNormConvolution : public Function<FusedNormConvolution> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                            const at::Tensor& weight, const at::Tensor& running_mean,
                            const at::Tensor& running_var, double momentum, double eps,
                            const ConvolutionSteps& steps, int64_t groups, ConvolutionForm form) {
    const ForwardPass pass;
    const NormedBatch norm =
        norm_batch(x, {norm_weight, norm_bias, running_mean, running_var, eps}, momentum);
    const at::Tensor by = factor(weight, x);
    context->save_for_backward(
        {x, norm_weight, norm_bias, by, norm.moments.mean, norm.moments.inverse_std});
    context->saved_data["steps"] = to_list(steps);
    context->saved_data["groups"] = groups;
    context->saved_data["form"] = static_cast<int64_t>(form);
    return convolution(norm.y, by, steps, groups, form);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("batch norm and convolution");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &by = saved[3];
    const NormMoments moments = {saved[4], saved[5]};
    const bool of_norm = context->needs_input_grad(0) || context->needs_input_grad(1) ||
                         context->needs_input_grad(2);
    const bool of_weight = context->needs_input_grad(3);
    // The other gradient takes no more of y than its layout, which is x's.
    at::Tensor y = of_weight ? norm_again(x, saved[1], saved[2], moments) : x;
    auto [y_gradient, weight_gradient] = convolution_gradients(
        gradients[0].to(x.scalar_type()), y, by,
        steps_of(context->saved_data["steps"].toIntVector()), context->saved_data["groups"].toInt(),
        static_cast<ConvolutionForm>(context->saved_data["form"].toInt()), of_norm, of_weight);
    y.reset();
    NormGradients of;
    if (of_norm) of = norm_gradients(y_gradient, x, saved[1], saved[2], moments);
    return {of.x, of.weight, of.bias, weight_gradient, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool fits_norm_convolution(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && has_fused_kernels(x) && type_of_product(x) == x.scalar_type() &&
         type_of_product(weight) == x.scalar_type();
}

at::Tensor fused_norm_convolution(const at::Tensor& x, const BatchNormState& norm, double momentum,
                                  const at::Tensor& weight, const ConvolutionSteps& steps,
                                  int64_t groups, ConvolutionForm form) {
  return FusedNormConvolution::apply(x, norm.weight, norm.bias, lowered_weight(weight, x),
                                     norm.running_mean, norm.running_var, momentum, norm.eps, steps,
                                     groups, form);
}

}  // namespace brim::nn
