// Loops of softmax cross-entropy over blocks of logits that a product leaves: a row for each class,
// a column for each token. Free of LibTorch; linear_cross_entropy.cpp is compiled once for each
// instruction set of isa.h.
//
//   loss of a token = log Σ exp(logit) - its label's logit
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/fused/loops/numbers.h"

namespace brim::nn::loops {

/// Tokens of a block of logits.
inline constexpr int64_t kBlockTokens = 64;

/// Exponentials are kept as T, in rows of a stride.
template <class T>
struct LinearCrossEntropyLoops {
  /// logits [rows, kBlockTokens] to exp(logit - highest); and of each token the highest logit and
  /// the sum of those exponentials before they are rounded.
  void (*exponentials)(int64_t rows, const float* logits, float* highest, float* sums, T* to,
                       int64_t stride);
  /// From what that gave of kBlockTokens tokens in several blocks, whose numbers lie `stride`
  /// apart: each token's log Σ exp(logit) over all of them, and `highest` to share · exp(highest -
  /// log_sum), which makes a block's exponentials gradients.
  void (*merge)(int64_t blocks, int64_t stride, const float* sums, const float* shares,
                float* highest, float* log_sums);
  /// A multiple of kBlockTokens values in each row, times factors[column]; they may stay in place.
  void (*scale)(int64_t rows, int64_t columns, const float* factors, const T* from, int64_t stride,
                T* to, int64_t to_stride);
  void (*scale_to_float)(int64_t rows, int64_t columns, const float* factors, const T* from,
                         int64_t stride, float* to, int64_t to_stride);
};

struct LinearCrossEntropyTable {
  LinearCrossEntropyLoops<float> of_float;
  LinearCrossEntropyLoops<BFloat16> of_bfloat16;
};

/// The loops for an instruction set, which is available.
LinearCrossEntropyTable linear_cross_entropy_table(Isa isa);

/// The best for T, which is float or BFloat16.
template <class T>
const LinearCrossEntropyLoops<T>& linear_cross_entropy_loops() {
  static const LinearCrossEntropyTable best = linear_cross_entropy_table(best_isa());
  if constexpr (std::is_same_v<T, float>) {
    return best.of_float;
  } else {
    return best.of_bfloat16;
  }
}

}  // namespace brim::nn::loops
