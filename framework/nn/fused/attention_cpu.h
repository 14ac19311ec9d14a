// The operators brim::self_attention and brim::self_attention_backward, for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace brim::nn::cpu {

/// qkv [N, L, 3 · W] float32 or bfloat16 without gaps: queries, keys and values, each of W / heads
/// values for one head after the other, of bfloat16 an even number. To the heads' outputs
/// [N, L, W] in the same format, and of each row of scores the logarithm of its exponentials' sum,
/// [N, heads, L] float32. `is_causal`: a token sees those before it and itself. Needs
/// multiplies_float_blocks() or multiplies_bf16_pairs() (block_product_cpu.h).
std::tuple<at::Tensor, at::Tensor> self_attention(const at::Tensor& qkv, int64_t heads,
                                                  bool is_causal);

/// The gradient of qkv, from that of the outputs [N, L, W], in qkv's format and without gaps.
at::Tensor self_attention_backward(const at::Tensor& gradient, const at::Tensor& qkv,
                                   const at::Tensor& out, const at::Tensor& log_sums, int64_t heads,
                                   bool is_causal);

}  // namespace brim::nn::cpu
