#include "framework/nn/linear.h"

#include <ATen/ops/linear.h>

#include "framework/nn/fused/linear.h"

namespace brim::nn {

// Not torch::nn::LinearImpl::forward(), which multiplies by a transposed view of the weight, that
// autocast would cast again in every pass; here it keeps the cast.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  bool fused) {
  if (fused && has_fused_linear(x, weight)) return fused_linear(x, weight, bias);
  return at::linear(x, weight, bias);
}

}  // namespace brim::nn
