// Self-attention on a CPU, head by head, with products by a kernel for one block of a matrix
// (block_product_cpu.h). LibTorch's flash attention multiplies by MKL, which has no instructions
// for bfloat16 on some CPUs that oneDNN has them for, and takes queries, keys and values apart.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused.h"

namespace brim::nn {

struct SelfAttention {
  int64_t heads;
  bool is_causal = false;  // a token sees those before it and itself
  double dropout = 0;      // probability of dropping a weight; 0 in evaluation
};

/// Whether there is a fused form: qkv [N, L, 3 · W] is not empty, in the format of products, and on
/// a CPU; float32, or bfloat16 where its products are upcast (upcast.h) or the CPU has instructions
/// for them and W / heads is even; L is at most 2048, W / heads at most 256, nothing is dropped.
bool has_fused_self_attention(const at::Tensor& qkv, const SelfAttention& attention);

/// softmax(Q Kᵀ / sqrt(W / heads)) · V for each head: from queries, keys and values, side by side
/// as qkv [N, L, 3 · W], to [N, L, W]. Needs has_fused_self_attention(). Its gradient has none:
/// then c10::NotImplementedError.
at::Tensor fused_self_attention(const at::Tensor& qkv, const SelfAttention& attention);

/// The same, fused or by LibTorch's scaled_dot_product_attention(). `is_training`: of the module
/// that calls (measured_forms.h).
at::Tensor self_attention(const at::Tensor& qkv, const SelfAttention& attention, Fused when,
                          bool is_training);

}  // namespace brim::nn
