// Products of bfloat16 or float32 matrices that the caches keep, by oneDNN's kernel for one block,
// through LibTorch's cpublas::brgemm(); or of float32 by tiles (loops/float_product.h). Factors of
// bfloat16 are laid out by loops/pairs.h.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "framework/nn/fused/cpu.h"
#include "framework/nn/fused/loops/float_product.h"
#include "framework/nn/fused/loops/pairs.h"

namespace brim::nn::cpu {

using loops::BFloat16;

/// Columns of a factor that is laid out in panels.
inline constexpr int64_t kPanelColumns = 64;

/// Values that are added up by one product of float32 tiles: their panel fits the nearest cache.
inline constexpr int64_t kTileDepth = 384;

/// Whether this CPU and this LibTorch have the kernel (AVX512-BF16, AMX).
bool multiplies_bf16_pairs();

/// Whether they have one for float32: oneDNN's, or multiply_tile().
bool multiplies_float_blocks();

/// Whether multiply_tile() is the fastest for this CPU: with AVX2 and without AVX-512, for which
/// libraries have kernels of their own.
bool multiplies_float_tiles();

/// A tile of a product, by AVX2, which is there.
void multiply_tile(const loops::FloatProduct& product);

/// The best for this CPU.
const loops::PairLoops& pair_loops();

/// Whether float32 has to be rounded for a factor of T.
template <class T>
inline constexpr bool kRounds = !std::is_same_v<T, float>;

/// Values of a column that a right factor of T has side by side.
template <class T>
inline constexpr int64_t kSideBySide = kRounds<T> ? 2 : 1;

/// A matrix as the kernel takes it: where it begins, and values from one row to the next.
template <class T>
struct Block {
  T* values;
  int64_t stride;
};

/// sum [rows, columns] = left [rows, depth] · right, plus what `sum` was where `adds`; `right` is
/// [depth/2, columns, 2], its stride a row's pairs. Only in the work of in_tasks().
void multiply(int64_t rows, int64_t columns, int64_t depth, Block<const BFloat16> left,
              Block<const BFloat16> right, Block<float> sum, bool adds = false);

/// The same in float32; `right` is [depth, columns].
void multiply(int64_t rows, int64_t columns, int64_t depth, Block<const float> left,
              Block<const float> right, Block<float> sum, bool adds = false);

// Factors as the kernel takes them, of a matrix [rows, columns]; `columns` of bfloat16 are even.

/// The right factor: [rows/2, columns, 2], with zeros behind an odd number of rows; or as it is.
void lay_out(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to);
void lay_out(int64_t rows, int64_t columns, Block<const float> from, float* to);
/// The right factor, rounded, of an even number of rows.
void lay_out_rounded(int64_t rows, int64_t columns, Block<const float> from, BFloat16* to);
/// Its transpose as a right factor: [columns/2, rows, 2] or [columns, rows].
void lay_out_transposed(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to);
void lay_out_transposed(int64_t rows, int64_t columns, Block<const float> from, float* to);
/// Its transpose as a left factor, whose rows are `stride` apart: `rows` rounded up to kSideBySide,
/// with zeros behind.
void transpose(int64_t rows, int64_t columns, Block<const BFloat16> from, BFloat16* to,
               int64_t stride);
void transpose(int64_t rows, int64_t columns, Block<const float> from, float* to, int64_t stride);
/// A matrix [rows, columns] without gaps, `bias` [columns] added to each row where there is one,
/// rounded.
void round_rows(int64_t rows, int64_t columns, const float* from, Block<BFloat16> to,
                const float* bias = nullptr);

/// How many of that size `count` takes.
inline int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }
inline int64_t rounded_up(int64_t count, int64_t size) { return blocks(count, size) * size; }

/// work(first, end, task) over parts of 0 … count, one for each thread.
template <class Work>
void in_tasks(int64_t count, const Work& work) {
  const int64_t tasks = std::min<int64_t>(count, at::get_num_threads());
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      work(count * task / tasks, count * (task + 1) / tasks, task);
    }
    at::native::cpublas::brgemm_release();
  });
}

/// Values side by side, with zeros behind the last. Where all are there no function is called.
template <int kCount>
void copy_padded(const float* from, int64_t count, float* to) {
  if (count == kCount) {
    std::memcpy(to, from, kCount * sizeof(float));
  } else {
    std::fill(std::copy_n(from, count, to), to + kCount, 0.F);
  }
}

/// kTileColumns columns of a matrix of `depth` rows, or the last ones, as a tile takes them.
void lay_out_tile(int64_t depth, int64_t columns, Block<const float> from, float* to);
/// The same of its transpose, of which these are rows.
void lay_out_transposed_tile(int64_t depth, int64_t columns, Block<const float> from, float* to);

/// multiply() for the columns of one lay_out_tile(). The left factor's row begins at row_at(row),
/// also of rows behind the last up to a whole tile's; its values lie left_step apart. `ahead`, as
/// large as `right`, is fetched meanwhile.
template <class RowAt>
void multiply_tiles(int64_t rows, int64_t columns, int64_t depth, const RowAt& row_at,
                    int64_t left_step, const float* right, Block<float> sum, bool adds,
                    const float* ahead = nullptr) {
  using loops::kTileRows;
  std::array<float, loops::kTileColumns> unused;
  const int64_t fetched = ahead == nullptr ? 0 : blocks(depth, blocks(rows, kTileRows));
  int64_t next = 0;  // row of `ahead`, which is a line
  for (int64_t r = 0; r < rows; r += kTileRows) {
    for (const int64_t end = std::min(next + fetched, depth); next < end; ++next) {
      __builtin_prefetch(ahead + next * loops::kTileColumns);
    }
    std::array<const float*, kTileRows> left_rows;
    std::array<float*, kTileRows> sum_rows;
    for (int64_t i = 0; i < kTileRows; ++i) {
      left_rows[i] = row_at(r + i);
      sum_rows[i] = r + i < rows ? sum.values + (r + i) * sum.stride : unused.data();
    }
    multiply_tile({.segments = 1,
                   .depth = depth,
                   .left = left_rows.data(),
                   .left_first = 0,
                   .left_step = left_step,
                   .right = &right,
                   .sums = sum_rows.data(),
                   .sums_first = 0,
                   .columns = columns,
                   .bias = nullptr,
                   .adds = adds});
  }
}

/// A right factor [depth, columns] that is multiplied by more than once, laid out in memory of its
/// owner's as the kernel takes it.
template <class T>
class RightFactor {
 public:
  static bool is_in_tiles() { return !kRounds<T> && multiplies_float_tiles(); }
  /// How much memory.
  static int64_t values(int64_t depth, int64_t columns) {
    return is_in_tiles() ? depth * rounded_up(columns, loops::kTileColumns)
                         : rounded_up(depth, kSideBySide<T>) * columns;
  }
  RightFactor(T* memory, int64_t depth, int64_t columns)
      : values_(memory), depth_(depth), columns_(columns) {}

  /// Of a matrix [depth, columns].
  void take(Block<const T> matrix) const { take_rows(0, depth_, matrix); }
  /// Some of its rows, of which the first is even for bfloat16.
  void take_rows(int64_t first, int64_t rows, Block<const T> matrix) const {
    if constexpr (!kRounds<T>) {
      if (is_in_tiles()) {
        for_each_tile([&](int64_t c, int64_t width, T* to) {
          lay_out_tile(rows, width, {matrix.values + c, matrix.stride},
                       to + first * loops::kTileColumns);
        });
        return;
      }
    }
    lay_out(rows, columns_, matrix, values_ + first * columns_);
  }
  /// Of the transpose of a matrix [columns, depth].
  void take_transposed(Block<const T> matrix) const {
    if constexpr (!kRounds<T>) {
      if (is_in_tiles()) {
        for_each_tile([&](int64_t c, int64_t width, T* to) {
          lay_out_transposed_tile(depth_, width, {matrix.values + c * matrix.stride, matrix.stride},
                                  to);
        });
        return;
      }
    }
    lay_out_transposed(columns_, depth_, matrix, values_);
  }

  /// multiply() by a part: `depth` of its rows from first_row on, which is even for bfloat16, and
  /// `columns` of its columns from first_column on, a multiple of kTileColumns.
  void multiply(int64_t rows, int64_t columns, int64_t depth, Block<const T> left,
                int64_t first_row, int64_t first_column, Block<float> sum,
                bool adds = false) const {
    if constexpr (!kRounds<T>) {
      if (is_in_tiles()) {
        for (int64_t k = 0; k < depth; k += kTileDepth, adds = true) {
          const auto row_at = [&](int64_t row) {
            return left.values + std::min(row, rows - 1) * left.stride + k;
          };
          for (int64_t c = 0; c < columns; c += loops::kTileColumns) {
            const float* const panel =
                values_ + (first_column + c) * depth_ + (first_row + k) * loops::kTileColumns;
            multiply_tiles(rows, std::min<int64_t>(loops::kTileColumns, columns - c),
                           std::min(kTileDepth, depth - k), row_at, /*left_step=*/1, panel,
                           {sum.values + c, sum.stride}, adds,
                           panel + depth_ * loops::kTileColumns);
          }
        }
        return;
      }
    }
    cpu::multiply(
        rows, columns, depth, left,
        Block<const T>{values_ + first_row * columns_ + kSideBySide<T> * first_column, columns_},
        sum, adds);
  }

 private:
  /// f(first column, columns, where they are laid out)
  template <class F>
  void for_each_tile(const F& f) const {
    for (int64_t c = 0; c < columns_; c += loops::kTileColumns) {
      f(c, std::min<int64_t>(loops::kTileColumns, columns_ - c), values_ + c * depth_);
    }
  }

  T* values_;
  int64_t depth_, columns_;
};

/// `values` of one type for each task.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t values)
      : values_(rounded_up(values, 64)),
        memory_(at::empty({at::get_num_threads() * values_ * static_cast<int64_t>(sizeof(T))},
                          at::kByte)) {}
  T* of(int64_t task) const { return writable<T>(memory_) + task * values_; }

 private:
  int64_t values_;
  at::Tensor memory_;
};

}  // namespace brim::nn::cpu
