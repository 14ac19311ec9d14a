// The way from the layers to the operators, and their gradient.
#include "framework/nn/fused/bf16_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/bf16_linear_cpu.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// With more rows the products take so long that what is saved beside them can't be measured.
constexpr int64_t kFewRows = 256;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("bf16_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  library.def(
      "bf16_linear_backward(Tensor gradient, Tensor x, Tensor weight, bool[3] wanted) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("bf16_linear", cpu::bf16_linear);
  library.impl("bf16_linear_backward", cpu::bf16_linear_backward);
}

at::Tensor bf16_linear_shape(const at::Tensor& x, const at::Tensor& weight,
                             const MaybeTensor& /*bias*/) {
  return at::empty({x.size(0), weight.size(0)}, x.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> bf16_linear_backward_shapes(
    const at::Tensor& /*gradient*/, const at::Tensor& x, const at::Tensor& weight,
    std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : at::Tensor(),
          wanted[1] ? at::empty_like(weight) : at::Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("bf16_linear", bf16_linear_shape);
  library.impl("bf16_linear_backward", bf16_linear_backward_shapes);
}

using Bf16LinearForward = at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&);
using Bf16LinearBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&,
                                                                          const at::Tensor&,
                                                                          const at::Tensor&,
                                                                          std::array<bool, 3>);

class FusedBf16Linear : public Function<FusedBf16Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias) {
    const ForwardPass pass;
    static const auto operation = find_operator<Bf16LinearForward>("brim::bf16_linear");
    const at::Tensor rows = rows_of(x, at::kBFloat16).contiguous();
    context->save_for_backward({rows, weight});
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["has_bias"] = bias.has_value();
    return laid_as(x, operation.call(rows, weight, bias));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear");
    static const auto operation = find_operator<Bf16LinearBackward>("brim::bf16_linear_backward");
    const auto saved = context->get_saved_variables();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    auto [of_x, of_weight, of_bias] =
        operation.call(rows_of(gradients[0], at::kBFloat16).contiguous(), saved[0], saved[1],
                       {context->needs_input_grad(0), context->needs_input_grad(1),
                        has_bias && context->needs_input_grad(2)});
    if (of_x.defined()) of_x = of_x.view(context->saved_data["sizes"].toIntVector());
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

bool has_fused_bf16_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto serves = [](const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kFloat && parameter.is_contiguous();
  };
  return x.is_cpu() && x.dim() > 0 && x.numel() > 0 && weight.numel() > 0 &&
         type_of_product(x) == at::kBFloat16 && at::autocast::is_autocast_enabled(at::kCPU) &&
         x.numel() / x.size(-1) <= kFewRows && weight.size(0) % 2 == 0 && weight.size(1) % 2 == 0 &&
         serves(weight) && (!bias.defined() || serves(bias)) && cpu::multiplies_bf16_pairs();
}

at::Tensor fused_bf16_linear(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
  return FusedBf16Linear::apply(lowered(x), weight, maybe(bias));
}

}  // namespace brim::nn
