// The inner loops of resizing: weighted sums of rows, and of pixels in a row. Weights are those of
// taps.h. All variants of a loop give the same bytes.
#pragma once

#include <cstdint>

#include "framework/data/taps.h"

namespace brim::data {

/// A row may be read this far beyond its last byte by blend_pixels().
inline constexpr int64_t kRowPadding = 16;

/// out[x] = Σ rows[k][x] · weights[k] for x in [0, bytes) and k in [0, count); weights has an even
/// number of entries, the one behind an odd count zero.
void blend_rows(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t bytes,
                uint8_t* out);

/// out[i] = Σ weighted pixels of `row`, for each of taps' positions; pixels have `channels` values
/// and the row begins with pixel number `left`.
void blend_pixels(const uint8_t* row, int64_t left, const Taps& taps, int64_t channels,
                  uint8_t* out);

}  // namespace brim::data
