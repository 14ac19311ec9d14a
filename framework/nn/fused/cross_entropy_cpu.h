// The CPU kernels of the operators that cross_entropy.cpp defines; a row's logits lie side by
// side. They throw c10::Error for what has another layout, shape or format, and Error(kData) for
// labels that are no class.
#pragma once

#include <tuple>

#include "framework/nn/fused/cpu.h"

namespace brim::nn::cpu {

/// Throws Error(kData) unless each label is in [0, classes) or ignore_index.
void check_labels(const int64_t* labels, int64_t rows, int64_t classes, int64_t ignore_index);

/// The loss; [2, N]: a row's highest logit, and 1 / Σ exp(logit - highest); 1 / rows that count.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(
    const at::Tensor& logits, const at::Tensor& labels, const MaybeTensor& partner_labels,
    const MaybeTensor& label_shares, int64_t ignore_index, double smoothing);

/// The gradient of the logits. `gradient` is the loss's; `rows` and `share` are what forward gave,
/// the labels those that it has checked.
at::Tensor cross_entropy_backward(const at::Tensor& gradient, const at::Tensor& logits,
                                  const at::Tensor& labels, const MaybeTensor& partner_labels,
                                  const MaybeTensor& label_shares, const at::Tensor& rows,
                                  const at::Tensor& share, int64_t ignore_index, double smoothing);

}  // namespace brim::nn::cpu
