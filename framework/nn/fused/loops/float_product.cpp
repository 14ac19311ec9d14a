// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/float_product.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

FloatProductLoop float_product_table();

namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kVectors = kTileColumns / kLanes<float>;

/// The last columns of a row that are fewer than a tile's.
BRIM_INLINE void store_part(Floats sum, int64_t count, const FloatProduct& p, int64_t first,
                            float* to) {
  const PartialVector part = {static_cast<int>(count < kLanes<float> ? count : kLanes<float>)};
  if (count <= 0) return;
  if (p.bias != nullptr) sum += load(p.bias + first, part);
  if (p.adds) sum += load(to + first, part);
  store(sum, to + first, part);
}

void multiply(const FloatProduct& p) {
  Floats sums[kTileRows][kVectors] = {};
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {  // two lines at most
    const float* const to = p.sums[r] + p.sums_first;
    __builtin_prefetch(to, /*to write*/ 1);
    __builtin_prefetch(to + p.columns - 1, 1);
  }
  const int64_t depth = p.depth, step = p.left_step;
  for (int64_t segment = 0; segment < p.segments; ++segment) {
    const float* const* const rows = p.left + segment * kTileRows;
    const auto begin = [&](int r) { return rows[r] + p.left_first; };
    const float *const a0 = begin(0), *const a1 = begin(1), *const a2 = begin(2),
                       *const a3 = begin(3), *const a4 = begin(4), *const a5 = begin(5);
    const float* right = p.right[segment];
#pragma GCC unroll 4
    for (int64_t k = 0, at = 0; k < depth; ++k, at += step, right += kTileColumns) {
      const Floats b0 = load(right, Whole()), b1 = load(right + kLanes<float>, Whole());
      const float a[kTileRows] = {a0[at], a1[at], a2[at], a3[at], a4[at], a5[at]};
#pragma GCC unroll 6
      for (int r = 0; r < kTileRows; ++r) {
        sums[r][0] += a[r] * b0;
        sums[r][1] += a[r] * b1;
      }
    }
  }
  if (p.columns < kTileColumns) {
    Floats kept[kTileRows][kVectors];  // so that `sums` have no address and stay in registers
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      kept[r][0] = sums[r][0];
      kept[r][1] = sums[r][1];
    }
    for (int r = 0; r < kTileRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t first = v * kLanes<float>;
        store_part(kept[r][v], p.columns - first, p, first, p.sums[r] + p.sums_first);
      }
    }
    return;
  }
  if (p.bias != nullptr) {
    const Floats b0 = load(p.bias, Whole()), b1 = load(p.bias + kLanes<float>, Whole());
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      sums[r][0] += b0;
      sums[r][1] += b1;
    }
  }
  if (p.adds) {
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      const float* const to = p.sums[r] + p.sums_first;
      sums[r][0] += load(to, Whole());
      sums[r][1] += load(to + kLanes<float>, Whole());
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
    float* const to = p.sums[r] + p.sums_first;
    store(sums[r][0], to, Whole());
    store(sums[r][1], to + kLanes<float>, Whole());
  }
}
#else
constexpr FloatProductLoop multiply = nullptr;
#endif

}  // namespace

FloatProductLoop float_product_table() { return multiply; }

}  // namespace brim::nn::loops::BRIM_ISA
