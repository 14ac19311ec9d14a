// JPEG and PNG files to 8-bit RGB pixels. Nothing in a file is trusted: its size is checked before
// pixels are allocated, and damage is an error, never half an image.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/data/resize.h"

namespace brim::data {

/// Larger images are refused.
inline constexpr int64_t kMaxImageSide = 65'500;
inline constexpr int64_t kMaxImagePixels = 100'000'000;

/// The file's image as RGB, upright by its EXIF orientation. Grayscale, palette, CMYK and 16-bit
/// are converted; alpha is dropped. The format is told by the first bytes. `name` is what errors
/// call the file. Throws Error(kData): empty, neither JPEG nor PNG, truncated, damaged, too large.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name);

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name);
Image decode_png(std::span<const uint8_t> bytes, const std::string& name);

/// An RGB image of this size, its pixels still zero; the check against the limits above.
Image allocate_rgb(int64_t height, int64_t width, const std::string& name);

}  // namespace brim::data
