// The way from the layers to the operators, and their gradient.
#include "framework/nn/fused/block_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/block_linear_cpu.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("block_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  library.def(
      "block_linear_backward(Tensor gradient, Tensor x, Tensor weight, bool[3] wanted) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("block_linear", cpu::block_linear);
  library.impl("block_linear_backward", cpu::block_linear_backward);
}

at::Tensor block_linear_shape(const at::Tensor& x, const at::Tensor& weight,
                              const MaybeTensor& /*bias*/) {
  return at::empty({x.size(0), weight.size(0)}, x.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> block_linear_backward_shapes(
    const at::Tensor& /*gradient*/, const at::Tensor& x, const at::Tensor& weight,
    std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : at::Tensor(),
          wanted[1] ? at::empty_like(weight) : at::Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("block_linear", block_linear_shape);
  library.impl("block_linear_backward", block_linear_backward_shapes);
}

using BlockLinearForward = at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&);
using BlockLinearBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&,
                                                                           const at::Tensor&,
                                                                           const at::Tensor&,
                                                                           std::array<bool, 3>);

class BlockLinear : public Function<BlockLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const MaybeTensor& bias) {
    const ForwardPass pass;
    static const auto operation = find_operator<BlockLinearForward>("brim::block_linear");
    const at::Tensor rows = rows_of(x, x.scalar_type()).contiguous();
    context->save_for_backward({rows, weight});
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["has_bias"] = bias.has_value();
    return laid_as(x, operation.call(rows, weight, bias));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear");
    static const auto operation = find_operator<BlockLinearBackward>("brim::block_linear_backward");
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

bool has_block_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto is_dense = [](const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kFloat && parameter.is_contiguous();
  };
  if (!x.is_cpu() || x.dim() == 0 || x.numel() == 0 || weight.dim() != 2 || weight.numel() == 0 ||
      (bias.defined() && !is_dense(bias))) {
    return false;
  }
  const at::ScalarType type = type_of_product(x);
  if (!is_dense(weight) && (has_few_rows(x) || !is_dense(weight.t()))) return false;
  if (type == at::kFloat) {
    return has_few_rows(x) ? cpu::multiplies_float_blocks() : cpu::multiplies_float_tiles();
  }
  return type == at::kBFloat16 && at::autocast::is_autocast_enabled(at::kCPU) &&
         weight.size(0) % 2 == 0 && weight.size(1) % 2 == 0 && cpu::multiplies_bf16_pairs();
}

bool has_few_rows(const at::Tensor& x) { return x.numel() / x.size(-1) <= cpu::kFewRows; }

at::Tensor block_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return BlockLinear::apply(lowered(x), weight, maybe(bias));
}

}  // namespace brim::nn
