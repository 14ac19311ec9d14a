// A fully connected layer whose weight is read where it lies, by a kernel for one block
// (block_product_cpu.h). In bfloat16 it is rounded on its way to the product, and its gradient is
// never rounded. LibTorch's way has autocast's copies of both, a copy of the bias to every row, and
// a pass for the bias's gradient.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether block_linear() takes these on this CPU, multiplied by a float32 weight and bias without
/// gaps: in bfloat16, by instructions for that under autocast, with even I and O; or in
/// float32, x of few rows, or of many where the CPU multiplies_float_tiles(). Beside many rows the
/// weight may be the transpose of one without gaps.
bool has_block_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Whether going over a weight is most of the work beside x.
bool has_few_rows(const at::Tensor& x);

/// at::linear(), under autocast or without: x [..., I], weight [O, I], bias [O] or undefined, to
/// [..., O] in the format of the product. Needs has_block_linear(). Its gradient has none: then
/// c10::NotImplementedError.
at::Tensor block_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace brim::nn
