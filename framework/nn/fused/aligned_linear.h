// An output layer of many classes on a GPU whose number is not a multiple of what its matrix units
// take at once, as GPT-2's 50257. Rows of its outputs would begin anywhere, and products that write
// or read such rows are several times slower: 13.1 and 17.2 ms forward and backward on an H100 for
// 16384 rows of 768 in bf16, beside 2 and 4. So they lie further apart.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether that pays: many rows x [..., I] on a GPU, weight [O, I] with many O of which a row of
/// outputs does not end on 16 bytes, no bias; autocast counts.
bool has_aligned_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// at::linear(x, weight) on any device, in x's format or autocast's, as a view [..., O] of rows
/// that begin on 128 bytes. Its gradient has none: then c10::NotImplementedError.
at::Tensor aligned_linear(const at::Tensor& x, const at::Tensor& weight);

}  // namespace brim::nn
