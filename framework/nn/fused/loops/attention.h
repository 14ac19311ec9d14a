// Loops of attention (Vaswani et al., 2017) over what its products of matrices leave: a block of
// scores, softmax over its rows, and gradients, as in FlashAttention-2 (Dao, 2023), with whole rows
// in a block. Free of LibTorch; attention.cpp is compiled once for each instruction set of isa.h.
//
//   weights = softmax(scale · Q Kᵀ), out = weights · V
//   log_sum of a row = log Σ exp(scale · score)
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/fused/loops/numbers.h"

namespace brim::nn::loops {

/// Columns of scores are stored in multiples of this.
inline constexpr int64_t kScoreColumns = 16;

/// A block of a matrix of scores, whose stride in memory is `columns`, rounded up to a multiple of
/// kScoreColumns. What is behind the last column is written as zeros.
struct Scores {
  int64_t rows, columns;
  float scale;
};

/// Factors of the next product are T, which float32's may overwrite the scores with.
template <class T>
struct AttentionLoops {
  /// A row for each query, of which row r sees the first `seen` + r · `step` keys: scores to
  /// unnormalized weights, and each row's sum of weights and log_sum.
  void (*softmax)(Scores block, int64_t seen, int64_t step, const float* scores, T* weights,
                  float* sums, float* log_sums);
  /// Rows of `columns` products, each divided by its sum.
  void (*normalize)(int64_t rows, int64_t columns, const float* products, const float* sums, T* to,
                    int64_t stride);
  /// Σ a · b of each row of two matrices.
  void (*dots)(int64_t rows, int64_t columns, const T* a, int64_t a_stride, const T* b,
               int64_t b_stride, float* sums);
  /// A row for each key, of which row r is seen by the queries from column r · `step` on:
  /// normalized weights, and the scores' gradients from those of the weights. `log_sums` and
  /// `dots`, those of out and its gradient, are a query's, with room for the stride.
  void (*gradients)(Scores block, int64_t step, const float* scores, const float* of_weights,
                    const float* log_sums, const float* dots, T* weights, T* of_scores);
};

struct AttentionTable {
  AttentionLoops<float> of_float;
  AttentionLoops<BFloat16> of_bfloat16;

  /// T is float or BFloat16.
  template <class T>
  const AttentionLoops<T>& of() const {
    if constexpr (std::is_same_v<T, float>) {
      return of_float;
    } else {
      return of_bfloat16;
    }
  }
};

/// The loops for an instruction set, which is available.
AttentionTable attention_table(Isa isa);

}  // namespace brim::nn::loops
