// Products of bfloat16 on a CPU that has no instructions for them: those of fully connected layers
// (linear.h) and of convolutions without a bias (convolution.h). LibTorch's kernels, which all
// others are left to, emulate them at a third of float32's speed; here float32's kernels multiply.
// Activations are widened, which is exact, and results rounded, so that what is kept for backward
// has bfloat16's size. Weights are taken as they are, and neither they nor their gradients are
// rounded: no copies of them are made, and results are nearer to the exact ones.
//
// Whoever defines an operator so: its forward() takes the weight as it is learned, in any format,
// and saves factor() of it; a product of bfloat16 with a factor of float32 is one that is widened.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether that is how products of x are taken where they are computed in `type`.
bool upcasts_matmul(const at::Tensor& x, at::ScalarType type);

/// From now on this CPU has the instructions, or not: for tests and benchmarks of both ways.
/// Returns what it was before.
bool assume_bf16_products(bool are_there);

/// What products multiply x by, in x's format: the weight, as float32 where products of x are
/// widened.
at::Tensor factor(const at::Tensor& weight, const at::Tensor& x);

}  // namespace brim::nn
