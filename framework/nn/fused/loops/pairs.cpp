// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/pairs.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

PairLoops pair_table();

namespace {

constexpr int kSide = kLanes<uint32_t>;  // of a square that is transposed in registers

template <int... kIndex>
struct Indices {};

/// Lanes 0, n, 1, n+1, … of two vectors of n, or those that follow them.
template <int kFirst, int... kIndex>
BRIM_INLINE Words interleaved(Words a, Words b, Indices<kIndex...>) {
  return __builtin_shufflevector(a, b, (kFirst + kIndex / 2 + (kIndex % 2 == 0 ? 0 : kSide))...);
}
#if defined(__AVX512F__)
using Lanes = Indices<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
using Lanes = Indices<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using Lanes = Indices<0, 1, 2, 3>;
#endif

/// rows[i][j] to rows[j][i]: a perfect shuffle of all lanes for each bit of an index.
BRIM_INLINE void transpose_square(Words (&rows)[kSide]) {
  for (int side = 1; side < kSide; side *= 2) {
    Words shuffled[kSide];
    for (int i = 0; i < kSide / 2; ++i) {
      const Words a = rows[i], b = rows[i + kSide / 2];
      shuffled[2 * i] = interleaved<0>(a, b, Lanes());
      shuffled[2 * i + 1] = interleaved<kSide / 2>(a, b, Lanes());
    }
    for (int i = 0; i < kSide; ++i) rows[i] = shuffled[i];
  }
}

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
      Words square[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        square[i] = i < height ? load_words(words + (r + i) * stride + c, width) : Words{};
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

BRIM_INLINE Words words_of(const BFloat16* from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
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

void pair(int64_t n, const BFloat16* even, const BFloat16* odd, BFloat16* to) {
  int64_t i = 0;
  for (; i + kSide <= n; i += kSide) {
    store_pairs(words_of(even + i), odd == nullptr ? Words{} : words_of(odd + i), to + 2 * i);
  }
  for (; i < n; ++i) {
    to[2 * i] = even[i];
    to[2 * i + 1] = odd == nullptr ? BFloat16{0} : odd[i];
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
        const AllHalves even = halves_of<0>(upper[i], lower[i], Lanes());
        const AllHalves odd = halves_of<1>(upper[i], lower[i], Lanes());
        __builtin_memcpy(out, &even, sizeof(even));
        __builtin_memcpy(out + to_stride, &odd, sizeof(odd));
      }
    }
    transpose_words(2 * kSide, words_of_row - in_squares, words + in_squares, word_stride,
                    to + 2 * in_squares * to_stride + row, to_stride);
  }
  transpose_words(rows - row, words_of_row, words, word_stride, to + row, to_stride);
}

void sum_rows(int64_t rows, int64_t columns, const BFloat16* from, float* sums) {
  for_each_vector<float>(columns, [&](int64_t i, auto part) {
    Floats sum = {};
    for (int64_t row = 0; row < rows; ++row) sum += load(from + row * columns + i, part);
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

}  // namespace

PairLoops pair_table() {
  return {round_rows, pair_rounded, pair, pair_transposed, transpose, sum_rows, round_transposed};
}

}  // namespace brim::nn::loops::BRIM_ISA
