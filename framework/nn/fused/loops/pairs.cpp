// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/pairs.h"

#include <utility>

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

PairLoops pair_table();

namespace {

constexpr int kSide = kLanes<uint32_t>;  // of a square that is transposed in registers

template <int... kIndex>
using Indices = std::integer_sequence<int, kIndex...>;
/// One for each word of a vector, or for each half of one.
using WordIndices = std::make_integer_sequence<int, kSide>;
using HalfIndices = std::make_integer_sequence<int, 2 * kSide>;

/// Lanes 0, n, 1, n+1, … of two vectors of n, or, from n/2, those that follow them.
template <int kFirst, class V, int... kIndex>
BRIM_INLINE V interleaved(V a, V b, Indices<kIndex...>) {
  constexpr int kCount = sizeof...(kIndex);
  return __builtin_shufflevector(a, b, (kFirst + kIndex / 2 + (kIndex % 2 == 0 ? 0 : kCount))...);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/// rows[i][j] to rows[j][i]: within half registers, whose shuffles are one instruction each, for
/// the lower bits of an index, and of whole halves for the highest.
BRIM_INLINE void transpose_square(Words (&rows)[kSide]) {
  static_assert(kSide == 8);
#pragma GCC unroll 2
  for (int i = 0; i < kSide; i += 4) {
    const Words a = rows[i], b = rows[i + 1], c = rows[i + 2], d = rows[i + 3];
    const Words ab01 = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    const Words ab23 = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    const Words cd01 = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    const Words cd23 = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    rows[i] = __builtin_shufflevector(ab01, cd01, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[i + 1] = __builtin_shufflevector(ab01, cd01, 2, 3, 10, 11, 6, 7, 14, 15);
    rows[i + 2] = __builtin_shufflevector(ab23, cd23, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[i + 3] = __builtin_shufflevector(ab23, cd23, 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kSide / 2; ++i) {
    const Words upper = rows[i], lower = rows[i + 4];
    rows[i] = __builtin_shufflevector(upper, lower, 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(upper, lower, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#else
/// rows[i][j] to rows[j][i]: a perfect shuffle of all lanes for each bit of an index.
BRIM_INLINE void transpose_square(Words (&rows)[kSide]) {
  for (int side = 1; side < kSide; side *= 2) {
    Words shuffled[kSide];
    for (int i = 0; i < kSide / 2; ++i) {
      const Words a = rows[i], b = rows[i + kSide / 2];
      shuffled[2 * i] = interleaved<0>(a, b, WordIndices());
      shuffled[2 * i + 1] = interleaved<kSide / 2>(a, b, WordIndices());
    }
    for (int i = 0; i < kSide; ++i) rows[i] = shuffled[i];
  }
}
#endif

BRIM_INLINE Words load_words(const uint32_t* from, int64_t count) {
  Words words = {};
  if (count >= kSide) {
    __builtin_memcpy(&words, from, sizeof(words));
    return words;
  }
  uint32_t values[kSide] = {};
  for (int i = 0; i < static_cast<int>(count); ++i) values[i] = from[i];
  __builtin_memcpy(&words, values, sizeof(words));
  return words;
}

/// The first `count` values of a vector that fills V, of type T.
template <class T, class V>
BRIM_INLINE void store_first(V v, int64_t count, T* to) {
  if (count == kSide) {
    __builtin_memcpy(to, &v, sizeof(v));
    return;
  }
  T values[kSide];
  __builtin_memcpy(values, &v, sizeof(v));
  for (int i = 0; i < static_cast<int>(count); ++i) to[i] = values[i];
}

/// put(column, first row, its values there, how many of them count) for each column of a matrix
/// [rows, columns] of 32-bit words.
template <class Put>
[[gnu::always_inline]] inline void for_each_column(int64_t rows, int64_t columns, const void* from,
                                                   int64_t stride, const Put& put) {
  const auto* words = static_cast<const uint32_t*>(from);
  for (int64_t r = 0; r < rows; r += kSide) {
    const int64_t height = rows - r < kSide ? rows - r : kSide;
    for (int64_t c = 0; c < columns; c += kSide) {
      const int64_t width = columns - c < kSide ? columns - c : kSide;
      const uint32_t* const first = words + r * stride + c;
      Words square[kSide];
      if (height == kSide && width == kSide) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kSide; ++i) square[i] = load_words(first + i * stride, kSide);
        transpose_square(square);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kSide; ++i) put(c + i, r, square[i], kSide);
        continue;
      }
      for (int64_t i = 0; i < kSide; ++i) {
        square[i] = i < height ? load_words(first + i * stride, width) : Words{};
      }
      transpose_square(square);
      for (int64_t i = 0; i < width; ++i) put(c + i, r, square[i], height);
    }
  }
}

BRIM_INLINE Words upper_half(Floats v) {
  BFloat16 values[kSide];
  store(v, values, Whole());
  Halves halves;
  __builtin_memcpy(&halves, values, sizeof(halves));
  return __builtin_convertvector(halves, Words);
}

BRIM_INLINE void store_pairs(Words even, Words odd, BFloat16* to) {
  const Words pairs = even | (odd << 16);
  __builtin_memcpy(to, &pairs, sizeof(pairs));
}

void round_rows(int64_t rows, int64_t columns, const float* from, const float* bias, BFloat16* to,
                int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row, from += columns, to += to_stride) {
    for_each_vector<float>(columns, [&](int64_t i, auto part) {
      Floats v = load(from + i, part);
      if (bias != nullptr) v += load(bias + i, part);
      store(v, to + i, part);
    });
  }
}

void pair_rounded(int64_t n, const float* even, const float* odd, BFloat16* to) {
  int64_t i = 0;
  for (; i + kSide <= n; i += kSide) {
    store_pairs(upper_half(load(even + i, Whole())), upper_half(load(odd + i, Whole())),
                to + 2 * i);
  }
  for (; i < n; ++i) {
    loops::store(even[i], to + 2 * i);
    loops::store(odd[i], to + 2 * i + 1);
  }
}

BRIM_INLINE AllHalves load_halves(const BFloat16* from) {
  AllHalves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return halves;
}

BRIM_INLINE void store_halves(AllHalves halves, BFloat16* to) {
  __builtin_memcpy(to, &halves, sizeof(halves));
}

void pair(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride, BFloat16* to) {
  constexpr int64_t kHalves = 2 * kSide;
  for (int64_t row = 0; row < rows; row += 2, from += 2 * stride, to += 2 * columns) {
    const bool has_odd = row + 1 < rows;
    int64_t c = 0;
    for (; c + kHalves <= columns; c += kHalves) {
      const AllHalves even = load_halves(from + c);
      const AllHalves odd = has_odd ? load_halves(from + stride + c) : AllHalves{};
      store_halves(interleaved<0>(even, odd, HalfIndices()), to + 2 * c);
      store_halves(interleaved<kSide>(even, odd, HalfIndices()), to + 2 * c + kHalves);
    }
    for (; c < columns; ++c) {
      to[2 * c] = from[c];
      to[2 * c + 1] = has_odd ? from[stride + c] : BFloat16{0};
    }
  }
}

void pair_transposed(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride,
                     BFloat16* to) {
  auto* const pairs = static_cast<uint32_t*>(static_cast<void*>(to));
  for_each_column(rows, columns / 2, from, stride / 2,
                  [&](int64_t pair, int64_t row, Words values, int64_t count) {
                    store_first(values, count, pairs + pair * rows + row);
                  });
}

/// The even halves of the words of a, then of b; or the odd ones.
template <int kFirst, int... kIndex>
BRIM_INLINE AllHalves halves_of(Words a, Words b, Indices<kIndex...>) {
  return __builtin_shufflevector(reinterpret_cast<AllHalves>(a), reinterpret_cast<AllHalves>(b),
                                 (2 * kIndex + kFirst)..., (2 * (kSide + kIndex) + kFirst)...);
}

/// A matrix [rows, 2 · columns] of which a word holds two columns; strides are in words and values.
void transpose_words(int64_t rows, int64_t columns, const uint32_t* from, int64_t stride,
                     BFloat16* to, int64_t to_stride) {
  for_each_column(
      rows, columns, from, stride, [&](int64_t pair, int64_t row, Words values, int64_t count) {
        BFloat16* const begin = to + 2 * pair * to_stride + row;
        store_first(__builtin_convertvector(values & 0xffffU, Halves), count, begin);
        store_first(__builtin_convertvector(values >> 16, Halves), count, begin + to_stride);
      });
}

/// Two squares at once fill vectors of the result, as each line that is stored by halves would come
/// into the nearest cache twice.
void transpose(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride, BFloat16* to,
               int64_t to_stride) {
  const auto* words = static_cast<const uint32_t*>(static_cast<const void*>(from));
  const int64_t words_of_row = columns / 2, word_stride = stride / 2;
  const int64_t in_squares = words_of_row / kSide * kSide;
  int64_t row = 0;
  for (; row + 2 * kSide <= rows; row += 2 * kSide, words += 2 * kSide * word_stride) {
    for (int64_t word = 0; word < in_squares; word += kSide) {
      Words upper[kSide], lower[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        upper[i] = load_words(words + i * word_stride + word, kSide);
        lower[i] = load_words(words + (kSide + i) * word_stride + word, kSide);
      }
      transpose_square(upper);
      transpose_square(lower);
      for (int64_t i = 0; i < kSide; ++i) {
        BFloat16* const out = to + 2 * (word + i) * to_stride + row;
        store_halves(halves_of<0>(upper[i], lower[i], WordIndices()), out);
        store_halves(halves_of<1>(upper[i], lower[i], WordIndices()), out + to_stride);
      }
    }
    transpose_words(2 * kSide, words_of_row - in_squares, words + in_squares, word_stride,
                    to + 2 * in_squares * to_stride + row, to_stride);
  }
  transpose_words(rows - row, words_of_row, words, word_stride, to + row, to_stride);
}

void sum_rows(int64_t rows, int64_t columns, const BFloat16* from, int64_t stride, float* sums) {
  for_each_vector<float>(columns, [&](int64_t i, auto part) {
    Floats sum = {};
    for (int64_t row = 0; row < rows; ++row) sum += load(from + row * stride + i, part);
    store(sum, sums + i, part);
  });
}

void round_transposed(int64_t rows, int64_t columns, const float* from, const float* bias,
                      BFloat16* to, int64_t to_stride) {
  for_each_column(rows, columns, from, columns,
                  [&](int64_t column, int64_t row, Words values, int64_t count) {
                    Floats sum = reinterpret_cast<Floats>(values);
                    BFloat16* const begin = to + column * to_stride + row;
                    if (count == kSide) {
                      if (bias != nullptr) sum += load(bias + row, Whole());
                      store(sum, begin, Whole());
                      return;
                    }
                    const PartialVector part{static_cast<int>(count)};
                    if (bias != nullptr) sum += load(bias + row, part);
                    store(sum, begin, part);
                  });
}

#ifdef __AVX512BF16__
constexpr int64_t kBlockRows = 4;
constexpr int64_t kPairsAhead = 8;  // of the product, for each row that is fetched

/// Rows first … first + kRows and columns c … c + width, up to 16 · kVectors: these sums stay in
/// registers.
template <int kRows, int kVectors>
void multiply_block(ProductOverRows p, int64_t first, int64_t c, int64_t width) {
  const auto last = static_cast<__mmask16>(0xffffU >> (kVectors * kSide - width));
  const auto lanes = [&](int v) { return v + 1 < kVectors ? static_cast<__mmask16>(~0U) : last; };
  const BFloat16 *left = p.left + 2 * first, *right = p.right + 2 * c;
  const BFloat16* ahead = p.ahead + first / kBlockRows * (p.pairs / kPairsAhead) * p.ahead_stride;
  float* const out = p.sum + first * p.sum_stride + c;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = p.adds ? _mm512_maskz_loadu_ps(lanes(v), out + r * p.sum_stride + v * kSide)
                          : _mm512_setzero_ps();
    }
  }
  for (int64_t pair = 0; pair < p.pairs; ++pair, left += p.left_stride, right += p.right_stride) {
    if (pair % kPairsAhead == 0) {
      __builtin_prefetch(ahead, /*to read*/ 0, /*into the second cache*/ 2);
      __builtin_prefetch(ahead + 2 * kSide, 0, 2);
      ahead += p.ahead_stride;
    }
    __m512bh factors[kVectors];
    __builtin_memcpy(factors, right, sizeof(factors));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t both = 0;
      __builtin_memcpy(&both, left + 2 * r, sizeof(both));
      const __m512i everywhere = _mm512_set1_epi32(both);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] =
            _mm512_dpbf16_ps(sums[r][v], reinterpret_cast<__m512bh>(everywhere), factors[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(out + r * p.sum_stride + v * kSide, lanes(v), sums[r][v]);
    }
  }
}

template <int kVectors>
void multiply_columns(const ProductOverRows& p, int64_t c, int64_t width) {
  int64_t row = 0;
  for (; row + kBlockRows <= p.rows; row += kBlockRows) {
    multiply_block<kBlockRows, kVectors>(p, row, c, width);
  }
  for (; row < p.rows; ++row) multiply_block<1, kVectors>(p, row, c, width);
}

void multiply_over_rows(const ProductOverRows& product) {
  constexpr decltype(multiply_columns<1>)* kByVectors[] = {
      multiply_columns<1>, multiply_columns<2>, multiply_columns<3>, multiply_columns<4>};
  constexpr int64_t kWidest = 4 * kSide;
  for (int64_t c = 0; c < product.columns; c += kWidest) {
    const int64_t width = product.columns - c < kWidest ? product.columns - c : kWidest;
    kByVectors[(width - 1) / kSide](product, c, width);
  }
}
#else
constexpr decltype(PairLoops::multiply_over_rows) multiply_over_rows = nullptr;
#endif

}  // namespace

PairLoops pair_table() {
  return {round_rows,       pair_rounded,      pair, pair_transposed, transpose, sum_rows,
          round_transposed, multiply_over_rows};
}

}  // namespace brim::nn::loops::BRIM_ISA
