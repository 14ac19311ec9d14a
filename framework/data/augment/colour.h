// Changes of an image's colours: contrast, saturation and hue, where the three values of a pixel or
// the whole image's grey count. The arithmetic is that of torchvision.transforms.v2.functional on
// uint8 tensors (version 0.26); sums may round otherwise, which is 1 grey level at most. Images are
// [height, width, channels], changed in place; channels is 1 or 3.
#pragma once

#include <cstdint>
#include <span>

namespace brim::data {

/// factor 0: all pixels are the mean grey; 1: no change. factor ≥ 0.
void adjust_contrast(std::span<uint8_t> image, int64_t channels, double factor);

/// factor 0: each pixel is its own grey; 1: no change. factor ≥ 0. Images of one channel stay.
void adjust_saturation(std::span<uint8_t> image, int64_t channels, double factor);

/// Turns the hue by `turn` of a full circle, -½ to ½. Images of one channel stay.
void adjust_hue(std::span<uint8_t> image, int64_t channels, double turn);

}  // namespace brim::data
