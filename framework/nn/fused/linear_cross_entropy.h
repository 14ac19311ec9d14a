// An output layer and the mean softmax cross-entropy of its logits in one, for large vocabularies:
// logits are computed for some tokens at a time and never all in memory, and the gradients of both
// factors in the same pass, as in Liger Kernel's fused linear cross-entropy (Hsu et al., 2024).
// LibTorch writes and reads all logits, and their gradients, several times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "framework/nn/fused.h"

namespace brim::nn {

/// Whether there is a fused form: x [N, W] on a CPU with kernels for blocks is multiplied in
/// float32 or bfloat16 (autocast counts), that with an even W or upcast (upcast.h), by a float32
/// weight [V, W] without gaps, and labels are int64 [N].
bool has_fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& labels);

/// A float32 scalar: the mean cross-entropy of the logits x · weightᵀ, over the rows whose label is
/// not `ignore_index`; 0 where none is. Needs has_fused_linear_cross_entropy(). Throws Error(kData)
/// with the row of a label that is no class. Its gradient has none: then c10::NotImplementedError.
at::Tensor fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& labels, int64_t ignore_index);

/// The same, fused or by way of the logits. `is_training`: of the module that calls
/// (measured_forms.h).
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& labels, int64_t ignore_index, Fused when,
                                bool is_training);

}  // namespace brim::nn
