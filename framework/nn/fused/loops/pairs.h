// Loops that lay out the factors of a product of bfloat16 matrices for instructions that multiply
// pairs of values (AVX512-BF16's VDPBF16PS, AMX's TDPBF16PS): of the right factor [K, N] they want
// [K/2, N, 2], the values of two rows side by side. Free of LibTorch; pairs.cpp is compiled once
// for each instruction set of isa.h.
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/fused/loops/numbers.h"

namespace brim::nn::loops {

/// sum [rows, columns] = the product of two matrices over their rows, plus what `sum` was where
/// `adds`.
struct ProductOverRows {
  int64_t rows, columns, pairs;
  const BFloat16* left;  // [pairs, rows, 2]
  int64_t left_stride;
  const BFloat16* right;  // [pairs, columns, 2]; memory is there for columns up to a multiple of 16
  int64_t right_stride;
  float* sum;
  int64_t sum_stride;
  bool adds;
  /// What is fetched from memory meanwhile, as it is laid out next: 64 columns of a matrix of which
  /// there is a row for each 4 rows and 8 pairs.
  const BFloat16* ahead;
  int64_t ahead_stride;
};

/// Strides are in values, from one row to the next; `columns` of a matrix that is read in pairs is
/// even.
struct PairLoops {
  /// A matrix [rows, columns] without gaps, `bias` [columns] added to each row, rounded. `bias` may
  /// be null.
  void (*round_rows)(int64_t rows, int64_t columns, const float* from, const float* bias,
                     BFloat16* to, int64_t to_stride);
  /// Two rows of n values, rounded, to [n, 2].
  void (*pair_rounded)(int64_t n, const float* even, const float* odd, BFloat16* to);
  /// A matrix [rows, columns] of bfloat16 to [rows/2, columns, 2], with zeros behind an odd number
  /// of rows.
  void (*pair)(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride, BFloat16* to);
  /// A matrix [rows, columns] to its transpose's pairs, [columns/2, rows, 2].
  void (*pair_transposed)(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride,
                          BFloat16* to);
  /// A matrix [rows, columns] to its transpose.
  void (*transpose)(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride,
                    BFloat16* to, int64_t to_stride);
  /// The sums of the columns of a matrix [rows, columns].
  void (*sum_rows)(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride,
                   float* sums);
  /// The transpose of a matrix [rows, columns] without gaps, `bias` [rows] added to its rows,
  /// rounded. `bias` may be null.
  void (*round_transposed)(int64_t rows, int64_t columns, const float* from, const float* bias,
                           BFloat16* to, int64_t to_stride);
  /// Null without AVX512-BF16.
  void (*multiply_over_rows)(const ProductOverRows& product);
};

/// The loops for an instruction set, which is available.
PairLoops pair_table(Isa isa);

}  // namespace brim::nn::loops
