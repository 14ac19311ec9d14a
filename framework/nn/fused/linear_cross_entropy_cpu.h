// The operator brim::linear_cross_entropy, for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

namespace brim::nn::cpu {

/// x [N, W] float32 or bfloat16 and weight [V, W] float32, both without gaps; labels int64 [N], in
/// [0, V) or ignore_index. To the mean loss of the tokens that have a label, a float32 scalar; and,
/// where they are wanted, its gradients of x, in x's format, and of the weight, float32. bfloat16
/// is multiplied in float32 where `upcasts`; else W is even, and this needs
/// multiplies_bf16_pairs(), in all other cases multiplies_float_blocks() (block_product_cpu.h).
/// Throws Error(kData) for a label that is no class.
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels, int64_t ignore_index,
    bool upcasts, std::array<bool, 2> wanted);

}  // namespace brim::nn::cpu
