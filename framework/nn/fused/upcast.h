// Products of bfloat16 on a CPU that multiplies float32 faster: those of fully connected layers
// (linear.h), of convolutions without a bias (convolution.h) and of self-attention (attention.h).
// Without instructions for bfloat16 LibTorch's kernels emulate them at a third of float32's speed;
// some Xeons have AVX512-BF16's alone, at half of it. Here float32's kernels multiply. Activations
// are widened, which is exact, and results rounded, so that what is kept for backward has
// bfloat16's size. Weights are taken as they are, and neither they nor their gradients are rounded:
// no copies of them are made, and results are nearer to the exact ones.
//
// Whoever defines an operator so: its forward() takes the weight as it is learned, in any format,
// and saves factor() of it; a product of bfloat16 with a factor of float32 is one that is widened.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused.h"

namespace brim::nn {

/// Whether this CPU multiplies bfloat16 faster than float32: by its instructions, until
/// choose_products() has measured it.
bool multiplies_bf16_faster();

/// Measures that, or takes the measurement that is known (measured_forms.h), where there are
/// instructions and `when` is kMeasured; else it is decided by the instructions. Does nothing
/// without storage.
void choose_products(Fused when);

/// Whether products of x are upcast where they are computed in `type`.
bool upcasts_matmul(const at::Tensor& x, at::ScalarType type);

/// From now on that is so, or not: for tests and benchmarks of both ways. Returns what it was
/// before.
bool assume_bf16_faster(bool is_faster);

/// What products multiply x by, in x's format: the weight, as float32 where products of x are
/// widened.
at::Tensor factor(const at::Tensor& weight, const at::Tensor& x);

}  // namespace brim::nn
