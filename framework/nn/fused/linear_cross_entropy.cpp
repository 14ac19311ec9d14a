// The way from the models to the operator, and its gradient.
#include "framework/nn/fused/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/cross_entropy.h"
#include "framework/nn/fused/linear_cross_entropy_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/linear.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "linear_cross_entropy(Tensor x, Tensor weight, Tensor labels, int ignore_index, "
      "bool upcasts, bool[2] wanted) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("linear_cross_entropy", cpu::linear_cross_entropy);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy_shapes(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& /*labels*/,
    int64_t /*ignore_index*/, bool /*upcasts*/, std::array<bool, 2> wanted) {
  return {at::empty({}, weight.options()), wanted[0] ? at::empty_like(x) : at::Tensor(),
          wanted[1] ? at::empty_like(weight) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("linear_cross_entropy", linear_cross_entropy_shapes);
}

using LinearCrossEntropy = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, bool, std::array<bool, 2>);

class FusedLinearCrossEntropy : public Function<FusedLinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t ignore_index, bool of_x,
                            bool of_weight) {
    const ForwardPass pass;
    static const auto operation = find_operator<LinearCrossEntropy>("brim::linear_cross_entropy");
    const auto [loss, x_gradient, weight_gradient] = operation.call(
        x, weight, labels, ignore_index, upcasts_matmul(x, x.scalar_type()), {of_x, of_weight});
    context->save_for_backward({x_gradient, weight_gradient});
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear cross-entropy");
    const auto saved = context->get_saved_variables();
    // Of a step that is not cut into micro-batches the loss's own gradient is 1.
    const bool is_one = gradients[0].is_cpu() && gradients[0].item<double>() == 1;
    const auto scaled = [&](const at::Tensor& gradient) {
      return is_one || !gradient.defined() ? gradient : gradient.mul(gradients[0]);
    };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}};
  }
};

}  // namespace

bool has_fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& labels) {
  if (!x.is_cpu() || x.dim() != 2 || x.numel() == 0 || weight.numel() == 0 ||
      weight.scalar_type() != at::kFloat || !weight.is_contiguous() || labels.dim() != 1 ||
      labels.size(0) != x.size(0) || labels.scalar_type() != at::kLong) {
    return false;
  }
  const at::ScalarType type = type_of_product(x);
  if (type != type_of_product(weight)) return false;
  if (type == at::kFloat || upcasts_matmul(x, type)) return cpu::multiplies_float_blocks();
  return type == at::kBFloat16 && x.size(1) % 2 == 0 && cpu::multiplies_bf16_pairs();
}

at::Tensor fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& labels, int64_t ignore_index) {
  const auto is_wanted = [](const at::Tensor& factor) {
    return at::GradMode::is_enabled() && factor.requires_grad();
  };
  return FusedLinearCrossEntropy::apply(lowered(x).contiguous(), weight, labels.contiguous(),
                                        ignore_index, is_wanted(x), is_wanted(weight));
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& labels, int64_t ignore_index, Fused when,
                                bool is_training) {
  const auto by_logits = [&](const at::Tensor& rows, const at::Tensor& by, const at::Tensor& of,
                             Fused form) {
    return mean_cross_entropy(linear(rows, by, {}, form, is_training), of, ignore_index,
                              /*smoothing=*/0, form != Fused::kNever);
  };
  const bool is_fused =
      when != Fused::kNever && has_fused_linear_cross_entropy(x, weight, labels) &&
      takes_fused(
          when,
          {.name = upcasts_matmul(x, type_of_product(x)) ? "linear cross-entropy, upcast"
                                                         : "linear cross-entropy",
           .batch = {x, labels},
           .parameters = {weight},
           .is_training = is_training,
           .is_fused_otherwise = false},
          [&](const auto& in, const auto& of) -> variable_list {
            return {fused_linear_cross_entropy(in[0], of[0], in[1], ignore_index)};
          },
          [&](const auto& in, const auto& of) -> variable_list {
            // One measurement can't be part of another.
            return {by_logits(in[0], of[0], in[1], Fused::kUsual)};
          });
  return is_fused ? fused_linear_cross_entropy(x, weight, labels, ignore_index)
                  : by_logits(x, weight, labels, when);
}

}  // namespace brim::nn
