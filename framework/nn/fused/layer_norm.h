// Layer normalisation and the addition of a residual branch before it: one pass over memory forward
// and one backward, where a row stays in the cache. Kept for backward are the sum, which the next
// layer keeps anyway, and two numbers a row. Under autocast the sum stays float32 and the norm is
// written, once, in the lower precision that the matrix product behind it reads; LibTorch writes it
// as float32 and casts it. Arithmetic is float32 (for float64 float64), sums over rows float64.
//
// Defined here are the operators brim::layer_norm and brim::layer_norm_backward with their CPU
// kernels; framework/cuda/ adds the CUDA kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused.h"

namespace brim::nn {

/// Parameters over the last dimension, [C] each.
struct LayerNormState {
  at::Tensor weight, bias;
  double eps = 1e-5;
};

struct AddedNorm {
  at::Tensor sum, norm;
};

/// Whether there is a fused form that gives norms of this type: x [..., C] is not empty, and x and
/// norm are both of float32, bfloat16 or float64 (CUDA: float16 too), or x of float32 and norm of
/// bfloat16 (CUDA: float16 too); parameters are float32, or float64 with float64. A branch, which
/// may be undefined, must have x's shape and the norm's type.
bool has_fused_layer_norm(const at::Tensor& x, const at::Tensor& branch,
                          const LayerNormState& state, at::ScalarType type);

/// x + branch, of x's type, and its norm, of `type`; without a branch the sum is x. The gradient
/// has no gradient of its own.
AddedNorm fused_layer_norm(const at::Tensor& x, const at::Tensor& branch,
                           const LayerNormState& state, at::ScalarType type);

/// The norm of x, and that of x + branch. Fused, the norm has autocast's type under autocast.
/// `is_training`: of the module that calls (measured_forms.h).
at::Tensor layer_norm(const at::Tensor& x, const LayerNormState& state, Fused when,
                      bool is_training);
AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& branch, const LayerNormState& state,
                         Fused when, bool is_training);

}  // namespace brim::nn
