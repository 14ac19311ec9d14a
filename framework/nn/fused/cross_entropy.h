// Softmax cross-entropy of class labels, the mean over a batch, in one pass over the logits forward
// and one backward: a row's maximum and sum of exponentials are found together (Milakov &
// Gimelshein, "Online normalizer calculation for softmax", 2018), block by block. Kept for backward
// are the logits as they are and two numbers a row, from which the softmax is made again: computing
// it twice takes less time than to write and read it, and half-precision logits are never held as
// float32. Arithmetic is float32 (for float64 float64), sums over rows float64.
//
// Defined here are the operators brim::cross_entropy and brim::cross_entropy_backward with their
// CPU kernels; framework/cuda/ adds the CUDA kernels, which wait for nothing.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace brim::nn {

/// What each row is to be; all are on the logits' device.
struct ClassTargets {
  at::Tensor labels;  // int64 [N], in [0, C) or ignore_index
  // Where a row has two labels, else undefined:
  at::Tensor partner_labels;  // int64 [N], likewise
  at::Tensor label_shares;    // float32 [N]: of labels; the rest is partner_labels'
  int64_t ignore_index = -100;
  double smoothing = 0.0;  // share of the target that is spread over all classes
};

/// Whether there is a fused form for these logits [N, C]: they are not empty, and of float32,
/// bfloat16, float64, or on CUDA float16.
bool has_fused_cross_entropy(const at::Tensor& logits, const ClassTargets& targets);

/// A scalar, float32 or for float64 float64: the mean over the rows that have a label, 0 where none
/// has; with partners, the mean over all rows, of which a missing label's part is 0. On the CPU
/// throws Error(kData) with the row of a label that is no class; on CUDA such a label fails a
/// device-side assertion. The gradient has no gradient of its own.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const ClassTargets& targets);

/// at::cross_entropy_loss() of logits in half precision. Autocast on a GPU leaves each sample's
/// logarithms in it, and raises only their mean: here they are float32.
at::Tensor plain_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               at::Reduction::Reduction reduction, int64_t ignore_index,
                               double smoothing);

/// Mean over the rows of logits [N, C] that have a label, 0 where none has; `is_fused`: in the
/// fused form, where there is one for these.
at::Tensor mean_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                              int64_t ignore_index, double smoothing, bool is_fused);

}  // namespace brim::nn
