#include "framework/data/image/blend.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

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

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

}  // namespace

void blend_rows(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t bytes,
                uint8_t* out) {
  int64_t done = 0;
  if (has_avx2()) done = blend_rows_avx2(rows, weights, count, bytes, out);
  blend_rows_plain(rows, weights, count, done, bytes, out);
}

void PixelBlender::start(const Taps& taps, int64_t channels) {
  taps_ = &taps;
  channels_ = channels;
  groups_ = (taps.most + kGroup - 1) / kGroup;
  if (channels != 3 || !has_avx2()) return;
  // Two positions side by side; the one behind an odd number of them is the last once more.
  const auto positions = static_cast<int64_t>(taps.runs.size());
  const int64_t even = positions + positions % 2;
  offsets_.resize(static_cast<size_t>(even));
  patterns_.resize(static_cast<size_t>(even * groups_ * 16));
  int16_t* pattern = patterns_.data();
  for (int64_t i = 0; i < even; i += 2) {
    const std::array<int64_t, 2> pair = {i, std::min(i + 1, positions - 1)};
    for (size_t lane = 0; lane < 2; ++lane) {
      const int64_t first = taps.runs[static_cast<size_t>(pair[lane])].first - taps.begin;
      offsets_[static_cast<size_t>(i) + lane] = static_cast<int32_t>(first * 3);
    }
    for (int64_t k = 0; k < groups_ * kGroup; k += 2) {
      for (const int64_t position : pair) {
        const int16_t* weights = taps.weights_of(position);
        for (int repeat = 0; repeat < 4; ++repeat) {
          *pattern++ = k < taps.stride ? weights[k] : int16_t{0};
          *pattern++ = k < taps.stride ? weights[k + 1] : int16_t{0};
        }
      }
    }
  }
}

void PixelBlender::blend(const uint8_t* row, uint8_t* out) const {
  if (channels_ == 3 && has_avx2()) {
    blend_rgb(row, out);
  } else {
    blend_plain(row, out);
  }
}

void PixelBlender::blend_plain(const uint8_t* row, uint8_t* out) const {
  for (size_t i = 0; i < taps_->runs.size(); ++i) {
    const auto [first, count] = taps_->runs[i];
    const uint8_t* from = row + (first - taps_->begin) * channels_;
    const int16_t* weights = taps_->weights_of(static_cast<int64_t>(i));
    for (int64_t c = 0; c < channels_; ++c) {
      int32_t sum = kHalf;
      for (int64_t k = 0; k < count; ++k) sum += from[k * channels_ + c] * weights[k];
      *out++ = to_byte(sum);
    }
  }
}

/// Two positions a turn, one in each half of a register, four taps at once.
__attribute__((target("avx2"))) void PixelBlender::blend_rgb(const uint8_t* row,
                                                             uint8_t* out) const {
  // Bytes of pixels 0 and 1, then of 2 and 3, widened and side by side: r0 r1 g0 g1 b0 b1 0 0.
  const __m256i first_pair = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i second_pair = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const auto* pattern = reinterpret_cast<const __m256i*>(patterns_.data());
  const auto positions = static_cast<int64_t>(taps_->runs.size());
  for (int64_t i = 0; i < positions; i += 2) {
    const uint8_t* left = row + offsets_[static_cast<size_t>(i)];
    const uint8_t* right = row + offsets_[static_cast<size_t>(i) + 1];
    __m256i sum = _mm256_set1_epi32(kHalf);
    for (int64_t group = 0; group < groups_; ++group) {
      const __m256i pixels = _mm256_inserti128_si256(
          _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(left))),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(right)), 1);
      const __m256i first =
          _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, first_pair), _mm256_loadu_si256(pattern));
      const __m256i second = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, second_pair),
                                               _mm256_loadu_si256(pattern + 1));
      sum = _mm256_add_epi32(sum, _mm256_add_epi32(first, second));
      pattern += 2;
      left += kGroupBytes;
      right += kGroupBytes;
    }
    const __m256i shifted = _mm256_srai_epi32(sum, kWeightBits);
    const __m256i words = _mm256_packs_epi32(shifted, shifted);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const int32_t left_pixel = _mm256_extract_epi32(bytes, 0);
    const int32_t right_pixel = _mm256_extract_epi32(bytes, 4);
    // Four bytes at once where another pixel follows to write over the one too many.
    std::memcpy(out + 3 * i, &left_pixel, i + 1 < positions ? 4 : 3);
    if (i + 2 < positions) {
      std::memcpy(out + 3 * i + 3, &right_pixel, 4);
    } else if (i + 1 < positions) {
      std::memcpy(out + 3 * i + 3, &right_pixel, 3);
    }
  }
}

}  // namespace brim::data
