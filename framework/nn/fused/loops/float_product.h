// A tile of a product of float32 matrices, whose sums stay in registers. Free of LibTorch;
// float_product.cpp is compiled once for each instruction set of isa.h.
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/isa.h"

namespace brim::nn::loops {

/// With 8 values a register, 12 of AVX2's 16 hold a tile.
inline constexpr int kTileRows = 6, kTileColumns = 16;

/// sums [kTileRows, columns] = Σ over segments of left [kTileRows, depth] · right [depth,
/// kTileColumns], plus what they were where `adds`.
struct FloatProduct {
  int64_t segments, depth;
  const float* const* left;   // [segments, kTileRows]: where each row begins
  int64_t left_first;         // values of a row before the product's first
  int64_t left_step;          // from one of a row's values to the next
  const float* const* right;  // [segments]: where each begins, without gaps
  float* const* sums;         // [kTileRows]: where each row begins
  int64_t sums_first;         // values of a row before the product's first
  int64_t columns;            // that are written, at most kTileColumns
  const float* bias;          // [columns], added to each row; may be null
  bool adds;
};

/// The loop for an instruction set, which is available; null but for AVX2.
using FloatProductLoop = void (*)(const FloatProduct&);
FloatProductLoop float_product_table(Isa isa);

}  // namespace brim::nn::loops
