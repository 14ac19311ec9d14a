#include "framework/data/image/resize.h"

namespace brim::data {

ImageView view(const Image& image) {
  return {image.pixels.data(), image.height, image.width, image.channels,
          image.width * image.channels};
}

Axis CropPlan::rows(int64_t shrink) const {
  return {.first = source.top,
          .in = source.height,
          .out = height,
          .begin = window.top,
          .count = window.height,
          .shrink = shrink};
}

Axis CropPlan::columns(int64_t shrink) const {
  return {.first = source.left,
          .in = source.width,
          .out = width,
          .begin = window.left,
          .count = window.width,
          .shrink = shrink};
}

void Resizer::start(const CropPlan& placement, int64_t channels, Filter filter,
                    std::span<uint8_t> out, int64_t shrink) {
  make_taps(placement.rows(shrink), filter, down_);
  make_taps(placement.columns(shrink), filter, across_);
  blender_.start(across_, channels);
  blended_.resize(
      static_cast<size_t>((across_.end - across_.begin) * channels + blender_.padding()));
  channels_ = channels;
  out_ = out;
  next_ = 0;
  rows_.resize(static_cast<size_t>(down_.most));
  run_.resize(static_cast<size_t>(down_.most));
  set_columns(needed().left, needed().width);
}

Box Resizer::needed() const {
  return {down_.begin, across_.begin, down_.end - down_.begin, across_.end - across_.begin};
}

void Resizer::set_columns(int64_t left, int64_t width) {
  left_ = left;
  width_ = width;
}

uint8_t* Resizer::row(int64_t y) {
  const auto bytes = static_cast<size_t>(width_ * channels_);
  memory_.resize(rows_.size() * bytes);
  return memory_.data() + static_cast<size_t>(y) % rows_.size() * bytes;
}

void Resizer::take(int64_t y, const uint8_t* pixels) {
  rows_[static_cast<size_t>(y) % rows_.size()] = pixels;
  const auto outputs = static_cast<int64_t>(down_.runs.size());
  // Only the columns that the second pass reads.
  const int64_t skip = (across_.begin - left_) * channels_;
  const auto row_bytes = static_cast<int64_t>(across_.runs.size()) * channels_;
  const int64_t bytes = (across_.end - across_.begin) * channels_;
  for (; next_ < outputs; ++next_) {
    const auto [first, count] = down_.runs[static_cast<size_t>(next_)];
    if (y < first + count - 1) break;
    for (int64_t k = 0; k < count; ++k) {
      run_[static_cast<size_t>(k)] = rows_[static_cast<size_t>(first + k) % rows_.size()] + skip;
    }
    blend_rows(run_.data(), down_.weights_of(next_), count, bytes, blended_.data());
    blender_.blend(blended_.data(), out_.data() + next_ * row_bytes);
  }
}

void resize(const ImageView& image, const CropPlan& placement, Filter filter,
            std::span<uint8_t> out) {
  thread_local Resizer resizer;
  resizer.start(placement, image.channels, filter, out);
  const Box needed = resizer.needed();
  resizer.set_columns(0, image.width);
  for (int64_t y = needed.top; y < needed.top + needed.height; ++y) {
    resizer.take(y, image.pixels + y * image.row_bytes);
  }
}

}  // namespace brim::data
