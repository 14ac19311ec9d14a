// A fully connected layer whose products are upcast (upcast.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Whether fused_linear() takes these and is faster than at::linear(): x and weight are of one
/// format, autocast counts, whose products are upcast.
bool has_fused_linear(const at::Tensor& x, const at::Tensor& weight);

/// at::linear(): x [..., I], weight [O, I], bias [O] or undefined, to [..., O] in x's format, that
/// of autocast where that is on. Needs has_fused_linear(). Its gradient has none: then
/// c10::NotImplementedError.
at::Tensor fused_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace brim::nn
