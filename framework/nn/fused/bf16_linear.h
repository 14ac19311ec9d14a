// A fully connected layer of few rows in bfloat16, whose weight is rounded on its way to the
// product and whose weight's gradient is never rounded. Beside a few rows, going over the weight is
// most of the work: autocast's copy of it, and oneDNN's own layout of that.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether fused_bf16_linear() takes these: few rows that are multiplied in bfloat16, on a CPU with
/// instructions for that, by a float32 weight and bias without gaps.
bool has_fused_bf16_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// at::linear() under autocast: x [..., I], weight [O, I], bias [O] or undefined, to [..., O]
/// bfloat16. Needs has_fused_bf16_linear(). Its gradient has none: then c10::NotImplementedError.
at::Tensor fused_bf16_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace brim::nn
