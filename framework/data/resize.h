// Images in memory, and resizing them with the antialiased bilinear (triangle) filter, first
// across, then down. The arithmetic is Pillow's (libImaging/Resample.c), so that results equal
// Pillow's to the bit where it takes the same order, and differ by at most 1 where it does not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace brim::data {

/// Decoded pixels, [height, width, channels], rows without gaps.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;
};

/// A rectangle of pixels.
struct Box {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const Box&) const = default;
};

/// Pixels owned by someone else; rows may have gaps.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t row_bytes = 0;

  /// The part inside `box`, which lies within the image.
  ImageView crop(const Box& box) const {
    return {pixels + box.top * row_bytes + box.left * channels, box.height, box.width, channels,
            row_bytes};
  }
};

ImageView view(const Image& image);

/// Resizes `image` to height × width and writes the part inside `window` to `out`, [window.height,
/// window.width, channels]. Only that part is computed, so time and memory follow the window and
/// the source, not height × width. All sizes are positive; the window lies within height × width.
void resize_window(const ImageView& image, int64_t height, int64_t width, const Box& window,
                   std::span<uint8_t> out);

}  // namespace brim::data
