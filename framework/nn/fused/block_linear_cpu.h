// The operators brim::block_linear and brim::block_linear_backward, for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "framework/nn/fused/dtypes.h"

namespace brim::nn::cpu {

/// With more rows loops go over them in another order. Of float32 they need
/// multiplies_float_tiles().
inline constexpr int64_t kFewRows = 256;

/// x [N, I], weight [O, I] float32, bias [O] float32 or none, all without gaps, to [N, O] in x's
/// format: float32, or bfloat16 with even I and O, where sums are float32 and weights
/// are rounded on their way to the product, so that no copy of them is kept. Beside many rows the
/// weight may be the transpose of one without gaps. Needs multiplies_float_blocks() or
/// multiplies_bf16_pairs() (block_product_cpu.h).
at::Tensor block_linear(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias);

/// Gradients of x (in its format), weight and bias (float32, not rounded), of which `wanted` says
/// which are asked for; the others are undefined. `gradient` [N, O] without gaps in x's format.
std::tuple<at::Tensor, at::Tensor, at::Tensor> block_linear_backward(const at::Tensor& gradient,
                                                                     const at::Tensor& x,
                                                                     const at::Tensor& weight,
                                                                     std::array<bool, 3> wanted);

}  // namespace brim::nn::cpu
