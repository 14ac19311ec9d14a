// A fully connected layer of few rows, whose weight is read where it lies: beside a few rows, going
// over the weight is most of the work. In bfloat16 it is rounded on its way to the product, and its
// gradient is never rounded. LibTorch's way has autocast's copy of it, and the layouts of its
// products.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether fused_few_row_linear() takes these: few rows on a CPU, multiplied in float32 or, by
/// instructions for that, in bfloat16, by a float32 weight and bias without gaps.
bool has_fused_few_row_linear(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias);

/// at::linear(), under autocast or without: x [..., I], weight [O, I], bias [O] or undefined, to
/// [..., O] in the format of the product. Needs has_fused_few_row_linear(). Its gradient has none:
/// then c10::NotImplementedError.
at::Tensor fused_few_row_linear(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias);

}  // namespace brim::nn
