#include "framework/data/blend.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define BRIM_AVX2 1
#endif

namespace brim::data {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

void blend_rows_plain(const uint8_t* const* rows, const int16_t* weights, int64_t count,
                      int64_t first, int64_t bytes, uint8_t* out) {
  for (int64_t x = first; x < bytes; ++x) {
    int32_t sum = kHalf;
    for (int64_t k = 0; k < count; ++k) sum += rows[k][x] * weights[k];
    out[x] = to_byte(sum);
  }
}

void blend_pixels_plain(const uint8_t* row, int64_t left, const Taps& taps, int64_t channels,
                        uint8_t* out) {
  for (size_t i = 0; i < taps.runs.size(); ++i) {
    const auto [first, count] = taps.runs[i];
    const uint8_t* from = row + (first - left) * channels;
    const int16_t* weights = taps.weights_of(static_cast<int64_t>(i));
    for (int64_t c = 0; c < channels; ++c) {
      int32_t sum = kHalf;
      for (int64_t k = 0; k < count; ++k) sum += from[k * channels + c] * weights[k];
      *out++ = to_byte(sum);
    }
  }
}

#ifdef BRIM_AVX2

/// Two neighbouring weights, as the multiply-add of pairs takes them.
int32_t weight_pair(const int16_t* weights) {
  int32_t pair = 0;
  std::memcpy(&pair, weights, sizeof(pair));
  return pair;
}

/// Returns how many bytes it made: the largest multiple of 32 that fits.
__attribute__((target("avx2"))) int64_t blend_rows_avx2(const uint8_t* const* rows,
                                                        const int16_t* weights, int64_t count,
                                                        int64_t bytes, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  int64_t x = 0;
  for (; x + 32 <= bytes; x += 32) {
    __m256i sum0 = _mm256_set1_epi32(kHalf);
    __m256i sum1 = sum0;
    __m256i sum2 = sum0;
    __m256i sum3 = sum0;
    for (int64_t k = 0; k < count; k += 2) {
      const __m256i pair = _mm256_set1_epi32(weight_pair(weights + k));
      const auto* a_row = reinterpret_cast<const __m256i*>(rows[k] + x);
      const auto* b_row = reinterpret_cast<const __m256i*>(rows[std::min(k + 1, count - 1)] + x);
      const __m256i a = _mm256_loadu_si256(a_row);
      const __m256i b = _mm256_loadu_si256(b_row);
      const __m256i low = _mm256_unpacklo_epi8(a, b);
      const __m256i high = _mm256_unpackhi_epi8(a, b);
      const auto add = [&](__m256i sum, __m256i pixels) __attribute__((target("avx2"))) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pixels, pair));
      };
      sum0 = add(sum0, _mm256_unpacklo_epi8(low, zero));
      sum1 = add(sum1, _mm256_unpackhi_epi8(low, zero));
      sum2 = add(sum2, _mm256_unpacklo_epi8(high, zero));
      sum3 = add(sum3, _mm256_unpackhi_epi8(high, zero));
    }
    const __m256i low = _mm256_packs_epi32(_mm256_srai_epi32(sum0, kWeightBits),
                                           _mm256_srai_epi32(sum1, kWeightBits));
    const __m256i high = _mm256_packs_epi32(_mm256_srai_epi32(sum2, kWeightBits),
                                            _mm256_srai_epi32(sum3, kWeightBits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(low, high));
  }
  return x;
}

/// RGB pixels; reads up to 16 bytes from the first of each four pixels on.
__attribute__((target("avx2"))) void blend_rgb_avx2(const uint8_t* row, int64_t left,
                                                    const Taps& taps, uint8_t* out) {
  // Bytes of pixels 0 and 1, then of 2 and 3, widened and side by side: r0 r1 g0 g1 b0 b1 0 0.
  const __m128i first_pair =
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  const __m128i second_pair =
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const size_t positions = taps.runs.size();
  for (size_t i = 0; i < positions; ++i) {
    const auto [first, count] = taps.runs[i];
    const uint8_t* from = row + (first - left) * 3;
    const int16_t* weights = taps.weights_of(static_cast<int64_t>(i));
    __m128i sum = _mm_set1_epi32(kHalf);
    int64_t k = 0;
    for (; k + 2 < count; k += 4) {
      const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 3 * k));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_shuffle_epi8(pixels, first_pair),
                                              _mm_set1_epi32(weight_pair(weights + k))));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_shuffle_epi8(pixels, second_pair),
                                              _mm_set1_epi32(weight_pair(weights + k + 2))));
    }
    if (k < count) {
      const __m128i pixels = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 3 * k));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_shuffle_epi8(pixels, first_pair),
                                              _mm_set1_epi32(weight_pair(weights + k))));
    }
    const __m128i shifted = _mm_srai_epi32(sum, kWeightBits);
    const __m128i words = _mm_packs_epi32(shifted, shifted);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    // Four bytes at once; the one too many is the next pixel's first.
    std::memcpy(out + 3 * i, &bytes, i + 1 < positions ? 4 : 3);
  }
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#endif

}  // namespace

void blend_rows(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t bytes,
                uint8_t* out) {
  int64_t done = 0;
#ifdef BRIM_AVX2
  if (has_avx2()) done = blend_rows_avx2(rows, weights, count, bytes, out);
#endif
  blend_rows_plain(rows, weights, count, done, bytes, out);
}

void blend_pixels(const uint8_t* row, int64_t left, const Taps& taps, int64_t channels,
                  uint8_t* out) {
#ifdef BRIM_AVX2
  if (channels == 3 && has_avx2()) {
    blend_rgb_avx2(row, left, taps, out);
    return;
  }
#endif
  blend_pixels_plain(row, left, taps, channels, out);
}

}  // namespace brim::data
