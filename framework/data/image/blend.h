// The inner loops of resizing: weighted sums of rows, and of pixels in a row. Weights are those of
// taps.h. All variants of a loop give the same bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/data/image/taps.h"

namespace brim::data {

/// out[x] = Σ rows[k][x] · weights[k] for x in [0, bytes) and k in [0, count); weights has an even
/// number of entries, the one behind an odd count zero.
void blend_rows(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t bytes,
                uint8_t* out);

/// Weighted sums of the pixels of a row, for all positions of some taps. Pixels have `channels`
/// values; rows begin with pixel taps.begin.
class PixelBlender {
 public:
  /// Keeps a reference to `taps`.
  void start(const Taps& taps, int64_t channels);

  /// How far beyond its last byte a row may be read.
  int64_t padding() const { return groups_ * kGroupBytes + kLoadBytes; }

  /// out[i] = Σ row[first + k] · weights_of(i)[k], channel by channel.
  void blend(const uint8_t* row, uint8_t* out) const;

 private:
  static constexpr int64_t kGroup = 4;  // taps that are taken at once
  static constexpr int64_t kGroupBytes = kGroup * 3;
  static constexpr int64_t kLoadBytes = 16;

  void blend_plain(const uint8_t* row, uint8_t* out) const;
  void blend_rgb(const uint8_t* row, uint8_t* out) const;

  const Taps* taps_ = nullptr;
  int64_t channels_ = 0;
  int64_t groups_ = 0;
  std::vector<int32_t> offsets_;   // of each position's first pixel, in bytes; an even number
  std::vector<int16_t> patterns_;  // weights as blend_rgb() multiplies by them
};

}  // namespace brim::data
