// Pixels to a PNG file, for images that are shown as they are.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/data/image/resize.h"

namespace brim::data {

/// An 8-bit PNG of an image of one channel (grey) or three (RGB), at least a pixel each way.
/// Compression is quick rather than tight. Throws Error(kResource) with libpng's words.
std::vector<uint8_t> encode_png(const Image& image);

}  // namespace brim::data
