#include "framework/nn/linear.h"

#include <ATen/ops/linear.h>

#include <vector>

#include "framework/nn/fused/aligned_linear.h"
#include "framework/nn/fused/few_row_linear.h"
#include "framework/nn/fused/linear.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {

namespace {

/// `upcast`: where has_fused_linear(). Not torch::nn::LinearImpl::forward(), which multiplies by a
/// transposed view of the weight, that autocast would cast again in every pass; here it keeps the
/// cast.
at::Tensor of_any_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       bool is_upcast) {
  return is_upcast ? fused_linear(x, weight, bias) : at::linear(x, weight, bias);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Fused when,
                  bool is_training) {
  if (when != Fused::kNever && has_aligned_linear(x, weight, bias)) {
    return aligned_linear(x, weight);
  }
  const bool is_upcast = when != Fused::kNever && has_fused_linear(x, weight);
  const bool is_of_few_rows =
      when != Fused::kNever && !(is_upcast && when == Fused::kAlways) &&
      has_fused_few_row_linear(x, weight, bias) &&
      takes_fused(
          when,
          {.name = is_upcast ? "linear of few rows, else upcast" : "linear of few rows",
           .batch = {x},
           .parameters = {weight, bias},
           .is_training = is_training,
           .is_fused_otherwise = !is_upcast && type_of_product(x) == at::kBFloat16},
          [](const auto& in, const auto& of) -> std::vector<at::Tensor> {
            return {fused_few_row_linear(in[0], of[0], of[1])};
          },
          [&](const auto& in, const auto& of) -> std::vector<at::Tensor> {
            return {of_any_rows(in[0], of[0], of[1], is_upcast)};
          });
  return is_of_few_rows ? fused_few_row_linear(x, weight, bias)
                        : of_any_rows(x, weight, bias, is_upcast);
}

}  // namespace brim::nn
