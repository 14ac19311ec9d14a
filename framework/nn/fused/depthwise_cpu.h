// The operators brim::depthwise_convolution and brim::depthwise_convolution_backward, for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

#include "framework/nn/fused/dtypes.h"

namespace brim::nn::cpu {

/// x [N, C, H, W] channels_last, float32, float64 or bfloat16, weight [C, 1, KH, KW] and bias [C]
/// or none of opmath_type(x), KH at most 7 and KW 3, 5 or 7; stride and padding of height and
/// width. To [N, C, OH, OW], like x.
at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const MaybeTensor& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding);

/// Gradients of x, weight and bias, of which `wanted` says which are asked for; the others are
/// undefined. `gradient` is like the output, channels_last.
std::tuple<at::Tensor, at::Tensor, at::Tensor> depthwise_convolution_backward(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, std::array<bool, 3> wanted);

}  // namespace brim::nn::cpu
