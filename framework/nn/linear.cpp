#include "framework/nn/linear.h"

#include <ATen/ops/linear.h>

#include <vector>

#include "framework/nn/fused/bf16_linear.h"
#include "framework/nn/fused/linear.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {

// Not torch::nn::LinearImpl::forward(), which multiplies by a transposed view of the weight, that
// autocast would cast again in every pass; here it keeps the cast.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Fused when,
                  bool is_training) {
  if (when == Fused::kNever) return at::linear(x, weight, bias);
  if (has_fused_linear(x, weight)) return fused_linear(x, weight, bias);
  const bool is_fused = has_fused_bf16_linear(x, weight, bias) &&
                        takes_fused(
                            when,
                            {.name = "linear of few rows",
                             .batch = {x},
                             .parameters = {weight, bias},
                             .is_training = is_training},
                            [](const auto& in, const auto& of) -> std::vector<at::Tensor> {
                              return {fused_bf16_linear(in[0], of[0], of[1])};
                            },
                            [](const auto& in, const auto& of) -> std::vector<at::Tensor> {
                              return {at::linear(in[0], of[0], of[1])};
                            });
  return is_fused ? fused_bf16_linear(x, weight, bias) : at::linear(x, weight, bias);
}

}  // namespace brim::nn
