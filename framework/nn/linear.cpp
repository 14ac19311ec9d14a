#include "framework/nn/linear.h"

#include <ATen/ops/linear.h>

#include <array>
#include <string_view>
#include <vector>

#include "framework/nn/fused/aligned_linear.h"
#include "framework/nn/fused/block_linear.h"
#include "framework/nn/fused/linear.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {

LinearForm linear_form(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       Fused when, bool is_training) {
  if (when == Fused::kNever) return LinearForm::kPlain;
  const bool is_upcast = has_fused_linear(x, weight);
  const LinearForm otherwise = is_upcast ? LinearForm::kUpcast : LinearForm::kPlain;
  if ((is_upcast && when == Fused::kAlways) || !has_block_linear(x, weight, bias)) return otherwise;
  static constexpr std::array<std::array<std::string_view, 2>, 2> kNames = {{
      {"linear by blocks", "linear by blocks, transposed weight"},
      {"linear by blocks, else upcast", "linear by blocks, else upcast, transposed weight"},
  }};
  const bool is_by_blocks = takes_fused(
      when,
      {.name = kNames[is_upcast ? 1 : 0][weight.is_contiguous() ? 0 : 1],
       .batch = {x},
       .parameters = {weight, bias},
       .is_training = is_training,
       .is_fused_otherwise = !is_upcast && has_few_rows(x) && type_of_product(x) == at::kBFloat16},
      [](const auto& in, const auto& of) -> std::vector<at::Tensor> {
        return {linear_in(LinearForm::kBlocks, in[0], of[0], of[1])};
      },
      [&](const auto& in, const auto& of) -> std::vector<at::Tensor> {
        return {linear_in(otherwise, in[0], of[0], of[1])};
      });
  return is_by_blocks ? LinearForm::kBlocks : otherwise;
}

// Not torch::nn::LinearImpl::forward(), which multiplies by a transposed view of the weight, that
// autocast would cast again in every pass; at::linear() keeps the cast.
at::Tensor linear_in(LinearForm form, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) {
  if (form == LinearForm::kBlocks) return block_linear(x, weight, bias);
  return form == LinearForm::kUpcast ? fused_linear(x, weight, bias) : at::linear(x, weight, bias);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Fused when,
                  bool is_training) {
  if (when != Fused::kNever && has_aligned_linear(x, weight, bias)) {
    return aligned_linear(x, weight);
  }
  return linear_in(linear_form(x, weight, bias, when, is_training), x, weight, bias);
}

}  // namespace brim::nn
