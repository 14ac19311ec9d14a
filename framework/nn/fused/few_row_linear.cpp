// The way from the layers to the operators, and their gradient.
#include "framework/nn/fused/few_row_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/few_row_linear_cpu.h"
#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// With more rows the products take so long that what is saved beside them can't be measured.
constexpr int64_t kFewRows = 256;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("few_row_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  library.def(
      "few_row_linear_backward(Tensor gradient, Tensor x, Tensor weight, bool[3] wanted) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("few_row_linear", cpu::few_row_linear);
  library.impl("few_row_linear_backward", cpu::few_row_linear_backward);
}

at::Tensor few_row_linear_shape(const at::Tensor& x, const at::Tensor& weight,
                                const MaybeTensor& /*bias*/) {
  return at::empty({x.size(0), weight.size(0)}, x.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> few_row_linear_backward_shapes(
    const at::Tensor& /*gradient*/, const at::Tensor& x, const at::Tensor& weight,
    std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : at::Tensor(),
          wanted[1] ? at::empty_like(weight) : at::Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("few_row_linear", few_row_linear_shape);
  library.impl("few_row_linear_backward", few_row_linear_backward_shapes);
}

using FewRowLinearForward = at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&);
using FewRowLinearBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&,
                                                                            const at::Tensor&,
                                                                            const at::Tensor&,
                                                                            std::array<bool, 3>);

class FusedFewRowLinear : public Function<FusedFewRowLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias) {
    const ForwardPass pass;
    static const auto operation = find_operator<FewRowLinearForward>("brim::few_row_linear");
    const at::Tensor rows = rows_of(x, x.scalar_type()).contiguous();
    context->save_for_backward({rows, weight});
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["has_bias"] = bias.has_value();
    return laid_as(x, operation.call(rows, weight, bias));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear");
    static const auto operation =
        find_operator<FewRowLinearBackward>("brim::few_row_linear_backward");
    const auto saved = context->get_saved_variables();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    auto [of_x, of_weight, of_bias] = operation.call(
        rows_of(gradients[0], saved[0].scalar_type()).contiguous(), saved[0], saved[1],
        {context->needs_input_grad(0), context->needs_input_grad(1),
         has_bias && context->needs_input_grad(2)});
    if (of_x.defined()) of_x = of_x.view(context->saved_data["sizes"].toIntVector());
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

bool has_fused_few_row_linear(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) {
  const auto serves = [](const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kFloat && parameter.is_contiguous();
  };
  if (!x.is_cpu() || x.dim() == 0 || x.numel() == 0 || weight.numel() == 0 ||
      x.numel() / x.size(-1) > kFewRows || !serves(weight) || (bias.defined() && !serves(bias))) {
    return false;
  }
  const at::ScalarType type = type_of_product(x);
  if (type == at::kFloat) return cpu::multiplies_float_blocks();
  return type == at::kBFloat16 && at::autocast::is_autocast_enabled(at::kCPU) &&
         weight.size(0) % 2 == 0 && weight.size(1) % 2 == 0 && cpu::multiplies_bf16_pairs();
}

at::Tensor fused_few_row_linear(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) {
  return FusedFewRowLinear::apply(lowered(x), weight, maybe(bias));
}

}  // namespace brim::nn
