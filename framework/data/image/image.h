// JPEG and PNG files to 8-bit RGB pixels. Nothing in a file is trusted: its size is checked before
// pixels are allocated, and damage is an error, never half an image.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "framework/data/image/resize.h"

namespace brim::data {

/// Larger images are refused.
inline constexpr int64_t kMaxImageSide = 65'500;
inline constexpr int64_t kMaxImagePixels = 100'000'000;
/// libjpeg keeps all coefficients of a JPEG in several scans, progressive or not, until it has the
/// last: 2 bytes for each value of each component, edges filled to whole blocks. A JPEG with more
/// is refused. Images of one and three components have less at any size that is allowed.
inline constexpr int64_t kMaxJpegCoefficientBytes = int64_t{640} << 20;

/// The file's image as RGB, upright by its EXIF orientation. Grayscale, palette, CMYK and 16-bit
/// are converted; alpha is dropped. The format is told by the first bytes. `name` is what errors
/// call the file. Beside the file it takes 3 bytes of memory a pixel, 6 where the image is turned
/// upright, and up to kMaxJpegCoefficientBytes. Throws Error(kData): empty, neither JPEG nor PNG,
/// truncated, damaged, too large.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name);

/// What to make of an upright image of this height and width.
using Place = std::function<CropPlan(int64_t height, int64_t width)>;

struct DrawOptions {
  Filter filter = Filter::kBilinear;
  /// JPEG only: decodes at 1/2, 1/4 or 1/8 of the size where that is still large enough, and
  /// interpolates colour more coarsely. Differs from exact decoding by a few grey levels,
  /// at edges between colours by tens.
  bool fast_decode = false;
};

/// decode_image() and resize() in one: only what the placement needs is decoded, as far as the
/// format allows, and the whole image is never in memory then, but for the coefficients of a JPEG
/// in several scans. Damage in parts that aren't needed may go unnoticed. Errors are
/// decode_image()'s. `out` is [window.height, window.width, 3].
void draw_image(std::span<const uint8_t> bytes, const std::string& name, const Place& place,
                const DrawOptions& options, std::span<uint8_t> out);

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name);
Image decode_png(std::span<const uint8_t> bytes, const std::string& name);

/// draw_image() of a JPEG that stands upright and isn't CMYK; false, without doing anything, for
/// others.
bool draw_jpeg(std::span<const uint8_t> bytes, const std::string& name, const Place& place,
               const DrawOptions& options, std::span<uint8_t> out);

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

/// The size of a JPEG that decoders in hardware take and whose damage shows without decoding it: of
/// one scan, 8 bits a value, grey or with colour at full or half size, upright, with nothing but
/// coded pixels up to its end. Nullopt for others, and for those that decode_image() refuses.
std::optional<ImageSize> plain_jpeg_size(std::span<const uint8_t> bytes);

bool is_too_large(int64_t height, int64_t width);
/// Throws Error(kData) where an image is larger than the limits above.
void check_image_size(int64_t height, int64_t width, const std::string& name);
/// An RGB image of this size, its pixels still zero, after that check.
Image allocate_rgb(int64_t height, int64_t width, const std::string& name);

}  // namespace brim::data
