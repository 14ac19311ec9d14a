// Images in memory, and resizing them with antialiased filters: first down, then across. Taps and
// filters are Pillow's (libImaging/Resample.c); weights are 14-bit fixed point and the order of the
// passes differs, so results may differ from Pillow's by a grey level.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/image/blend.h"
#include "framework/data/image/taps.h"

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
};

ImageView view(const Image& image);

/// What to make of an image: `source`, which lies within it, is resized to height × width, and the
/// part of that inside `window` is kept. All sizes are positive.
struct CropPlan {
  Box source;
  int64_t height = 0;
  int64_t width = 0;
  Box window;

  /// The image is given at 1/shrink of its size.
  Axis rows(int64_t shrink = 1) const;
  Axis columns(int64_t shrink = 1) const;
};

/// Takes the rows of an image from top to bottom as they are decoded and writes the resized image.
/// Keeps its memory for the next image; not thread-safe.
class Resizer {
 public:
  /// The image is given at 1/shrink of the size that `placement` speaks of, rounded up. Only rows
  /// and columns of needed() will be read. `out` is [window.height, window.width, channels].
  void start(const CropPlan& placement, int64_t channels, Filter filter, std::span<uint8_t> out,
             int64_t shrink = 1);

  /// In pixels of the image as it is given.
  Box needed() const;

  /// Tells that the rows given begin at column `left` ≤ needed().left and are `width` pixels wide.
  void set_columns(int64_t left, int64_t width);
  /// Memory for row `y`, `width` pixels, for those who have none of their own.
  uint8_t* row(int64_t y);
  /// Row `y` lies at `pixels`, and stays there until all rows are given.
  void take(int64_t y, const uint8_t* pixels);

 private:
  Taps across_;
  Taps down_;
  int64_t channels_ = 0;
  std::span<uint8_t> out_;
  int64_t left_ = 0;
  int64_t width_ = 0;
  int64_t next_ = 0;                  // output row to be made next
  std::vector<const uint8_t*> rows_;  // of the last rows given, row y at y % size
  std::vector<uint8_t> memory_;       // what row() gives out
  std::vector<const uint8_t*> run_;   // scratch: rows of one output row
  PixelBlender blender_;
  std::vector<uint8_t> blended_;  // scratch: an output row before it is narrowed
};

/// `image` resized as placed.
void resize(const ImageView& image, const CropPlan& placement, Filter filter,
            std::span<uint8_t> out);

}  // namespace brim::data
