#include "framework/nn/fused/block_product_cpu.h"

#include <exception>
#include <vector>

namespace brim::nn::cpu {
namespace {

const at::BFloat16* as_libtorch(const BFloat16* values) {
  return static_cast<const at::BFloat16*>(static_cast<const void*>(values));
}

/// Whether the kernel is there and takes such blocks: k % 3 in the left factor's column k by n % 5
/// in the right one's column n. Makes no tensor, since tensors may have no storage here.
template <class T>
bool multiplies_right(int64_t rows, int64_t columns, int64_t depth) {
  std::vector<T> left(static_cast<size_t>(rows * depth));
  std::vector<T> right(static_cast<size_t>(depth * columns));
  std::vector<float> sum(static_cast<size_t>(rows * columns));
  float of_row = 0;
  for (int64_t k = 0; k < depth; ++k) {
    of_row += static_cast<float>(k % 3);
    for (int64_t r = 0; r < rows; ++r)
      loops::store(static_cast<float>(k % 3), &left[r * depth + k]);
  }
  for (int64_t i = 0; i < depth * columns; ++i) {
    loops::store(static_cast<float>(i / kSideBySide<T> % columns % 5), &right[i]);
  }
  for (const bool adds : {false, true}) {
    multiply(rows, columns, depth, Block<const T>{left.data(), depth},
             Block<const T>{right.data(), columns}, {sum.data(), columns}, adds);
  }
  at::native::cpublas::brgemm_release();
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (sum[i] != 2 * of_row * static_cast<float>(i % columns % 5)) return false;
  }
  return true;
}

/// multiply() in tiles that registers keep. The right factor's columns are laid out for each, since
/// the nearest cache would keep few of them where they lie.
void multiply_in_tiles(int64_t rows, int64_t columns, int64_t depth, Block<const float> left,
                       Block<const float> right, Block<float> sum, bool adds) {
  using loops::kTileColumns;
  alignas(64) std::array<float, kTileDepth * kTileColumns> panel;
  for (int64_t k = 0; k < depth; k += kTileDepth, adds = true) {
    const int64_t part = std::min(kTileDepth, depth - k);
    const auto row_at = [&](int64_t row) {
      return left.values + std::min(row, rows - 1) * left.stride + k;
    };
    for (int64_t c = 0; c < columns; c += kTileColumns) {
      const int64_t width = std::min<int64_t>(kTileColumns, columns - c);
      lay_out_tile(part, width, {right.values + k * right.stride + c, right.stride}, panel.data());
      multiply_tiles(rows, width, part, row_at, /*left_step=*/1, panel.data(),
                     {sum.values + c, sum.stride}, adds);
    }
  }
}

template <class T>
bool multiplies_all() {
  try {
    return multiplies_right<T>(32, 32, 32) && multiplies_right<T>(1, 1, 2) &&
           multiplies_right<T>(3, 5, 6) && multiplies_right<T>(64, 65, 130);
  } catch (const std::exception&) {  // c10::Error, or oneDNN's own
    return false;
  }
}

}  // namespace

bool multiplies_bf16_pairs() {
  static const bool does =
      loops::best_isa() == loops::Isa::kAvx512Bf16 && multiplies_all<BFloat16>();
  return does;
}

bool multiplies_float_blocks() {
  static const bool does = multiplies_all<float>();
  return does;
}

bool multiplies_float_tiles() { return loops::best_isa() == loops::Isa::kAvx2; }

void multiply_tile(const loops::FloatProduct& product) {
  static const loops::FloatProductLoop loop = loops::float_product_table(loops::Isa::kAvx2);
  loop(product);
}

void lay_out_tile(int64_t depth, int64_t columns, Block<const float> from, float* to) {
  for (int64_t k = 0; k < depth; ++k, from.values += from.stride, to += loops::kTileColumns) {
    copy_padded<loops::kTileColumns>(from.values, columns, to);
  }
}

void lay_out_transposed_tile(int64_t depth, int64_t columns, Block<const float> from, float* to) {
  if (columns == loops::kTileColumns) {
    lay_out_transposed(columns, depth, from, to);
    return;
  }
  for (int64_t k = 0; k < depth; ++k, to += loops::kTileColumns) {
    std::fill_n(to, loops::kTileColumns, 0.F);
    for (int64_t c = 0; c < columns; ++c) to[c] = from.values[c * from.stride + k];
  }
}

const loops::PairLoops& pair_loops() {
  static const loops::PairLoops best = loops::pair_table(loops::best_isa());
  return best;
}

void multiply(int64_t rows, int64_t columns, int64_t depth, Block<const BFloat16> left,
              Block<const BFloat16> right, Block<float> sum, bool adds) {
  at::native::cpublas::brgemm(rows, columns, depth, left.stride, right.stride, sum.stride, adds,
                              as_libtorch(left.values), as_libtorch(right.values), sum.values);
}

void multiply(int64_t rows, int64_t columns, int64_t depth, Block<const float> left,
              Block<const float> right, Block<float> sum, bool adds) {
  if (multiplies_float_tiles()) {
    multiply_in_tiles(rows, columns, depth, left, right, sum, adds);
    return;
  }
  at::native::cpublas::brgemm(rows, columns, depth, left.stride, right.stride, sum.stride, adds,
                              left.values, right.values, sum.values);
}

void lay_out(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to) {
  pair_loops().pair(rows, columns, from.values, from.stride, to);
}

void lay_out(int64_t rows, int64_t columns, Block<const float> from, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from.values + row * from.stride, columns, to + row * columns);
  }
}

void lay_out_rounded(int64_t rows, int64_t columns, Block<const float> from, BFloat16* to) {
  for (int64_t row = 0; row < rows; row += 2) {
    const float* const even = from.values + row * from.stride;
    pair_loops().pair_rounded(columns, even, even + from.stride, to + row * columns);
  }
}

void lay_out_transposed(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to) {
  pair_loops().pair_transposed(rows, columns, from.values, from.stride, to);
}

/// A value of float32 is moved as a pair of bfloat16.
void lay_out_transposed(int64_t rows, int64_t columns, Block<const float> from, float* to) {
  pair_loops().pair_transposed(rows, 2 * columns,
                               static_cast<const BFloat16*>(static_cast<const void*>(from.values)),
                               2 * from.stride, static_cast<BFloat16*>(static_cast<void*>(to)));
}

void transpose(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to,
               int64_t stride) {
  pair_loops().transpose(rows, columns, from.values, from.stride, to, stride);
  for (int64_t i = 0; rows < stride && i < columns; ++i) to[i * stride + rows] = {};
}

void transpose(int64_t rows, int64_t columns, Block<const float> from, float* to,
               int64_t /*stride*/) {
  lay_out_transposed(rows, columns, from, to);
}

void round_rows(int64_t rows, int64_t columns, const float* from, Block<BFloat16> to,
                const float* bias) {
  pair_loops().round_rows(rows, columns, from, bias, to.values, to.stride);
}

}  // namespace brim::nn::cpu
