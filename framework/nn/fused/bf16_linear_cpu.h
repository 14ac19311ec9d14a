// The operators brim::bf16_linear and brim::bf16_linear_backward, for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "framework/nn/fused/dtypes.h"

namespace brim::nn::cpu {

/// x [N, I] bfloat16, weight [O, I] float32, bias [O] float32 or none, all without gaps, I and O
/// even, to [N, O] bfloat16. Sums are float32; weights are rounded on their way to the product, so
/// that no copy of them is made. Needs multiplies_bf16_pairs() (block_product_cpu.h).
at::Tensor bf16_linear(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias);

/// Gradients of x (bfloat16), weight and bias (float32, not rounded), of which `wanted` says which
/// are asked for; the others are undefined. `gradient` [N, O] bfloat16 without gaps.
std::tuple<at::Tensor, at::Tensor, at::Tensor> bf16_linear_backward(const at::Tensor& gradient,
                                                                    const at::Tensor& x,
                                                                    const at::Tensor& weight,
                                                                    std::array<bool, 3> wanted);

}  // namespace brim::nn::cpu
