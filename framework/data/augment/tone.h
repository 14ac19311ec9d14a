// Changes of an image's tones: each value becomes another one whatever its neighbours are, so a
// table of 256 entries does the work. The arithmetic is that of
// torchvision.transforms.v2.functional on uint8 tensors (version 0.26), to the bit. Images are
// [height, width, channels], changed in place; channels is 1 or 3.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace brim::data {

/// What each of the 256 values becomes.
using ToneTable = std::array<uint8_t, 256>;

void apply_table(std::span<uint8_t> image, const ToneTable& table);

/// value · factor. factor ≥ 0.
void adjust_brightness(std::span<uint8_t> image, double factor);

/// Keeps the upper `bits` bits of each value, 0 to 8.
void posterize(std::span<uint8_t> image, int bits);

/// Inverts the values from `threshold` on.
void solarize(std::span<uint8_t> image, double threshold);

/// Stretches each channel to the whole range.
void autocontrast(std::span<uint8_t> image, int64_t channels);

/// Makes each channel's values as frequent as each other, by Pillow's rule.
void equalize(std::span<uint8_t> image, int64_t channels);

}  // namespace brim::data
