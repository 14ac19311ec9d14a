#include "framework/data/image/orientation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace brim::data {
namespace {

constexpr int kUpright = 1;
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShortType = 3;
constexpr size_t kHeaderBytes = 8;
constexpr size_t kEntryBytes = 12;

/// An unsigned integer of 2 or 4 bytes; the caller has checked the range.
uint32_t number(std::span<const uint8_t> bytes, size_t at, size_t size, bool little_endian) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value = value << 8 | bytes[at + (little_endian ? size - 1 - i : i)];
  }
  return value;
}

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  if (tiff.size() < kHeaderBytes) return kUpright;
  const bool little_endian = tiff[0] == 'I' && tiff[1] == 'I';
  if (!little_endian && !(tiff[0] == 'M' && tiff[1] == 'M')) return kUpright;
  const size_t directory = number(tiff, 4, 4, little_endian);
  if (directory > tiff.size() - 2) return kUpright;
  const size_t entries = number(tiff, directory, 2, little_endian);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return kUpright;
    if (number(tiff, entry, 2, little_endian) != kOrientationTag) continue;
    const uint32_t value = number(tiff, entry + 8, 2, little_endian);
    const bool valid = number(tiff, entry + 2, 2, little_endian) == kShortType && value <= 8;
    return valid && value >= 1 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation <= kUpright || orientation > 8) return image;
  // What each value asks for, applied in this order: swap rows and columns, then mirror.
  const bool transpose = orientation >= 5;
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image result = {transpose ? image.width : image.height, transpose ? image.height : image.width,
                  image.channels, std::vector<uint8_t>(image.pixels.size())};
  uint8_t* to = result.pixels.data();
  for (int64_t y = 0; y < result.height; ++y) {
    const int64_t v = mirror_y ? result.height - 1 - y : y;
    for (int64_t x = 0; x < result.width; ++x, to += image.channels) {
      const int64_t u = mirror_x ? result.width - 1 - x : x;
      const int64_t from = transpose ? u * image.width + v : v * image.width + u;
      std::memcpy(to, image.pixels.data() + from * image.channels,
                  static_cast<size_t>(image.channels));
    }
  }
  return result;
}

}  // namespace brim::data
