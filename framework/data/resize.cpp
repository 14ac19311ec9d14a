#include "framework/data/resize.h"

#include <algorithm>
#include <cmath>

namespace brim::data {
namespace {

// Weights are fixed point with this many fractional bits: 8 bits for the pixel, 2 for the sum.
constexpr int kPrecisionBits = 32 - 8 - 2;

/// What each output position of one axis is made of: source pixels first … first + count - 1, with
/// weights[position * stride …].
struct Taps {
  struct Run {
    int64_t first;
    int64_t count;
  };
  std::vector<Run> runs;
  std::vector<int32_t> weights;
  int64_t stride = 0;
};

/// Taps of output positions begin … begin + count - 1 when `in` pixels become `out`.
Taps make_taps(int64_t in, int64_t out, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double filter_scale = std::max(scale, 1.0);
  const double support = filter_scale;  // the triangle reaches one pixel to each side
  Taps taps;
  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.runs.resize(static_cast<size_t>(count));
  taps.weights.resize(static_cast<size_t>(count * taps.stride));
  std::vector<double> exact(static_cast<size_t>(taps.stride));
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const int64_t last = std::min(in, static_cast<int64_t>(center + support + 0.5));
    double sum = 0;
    for (int64_t k = 0; k < last - first; ++k) {
      const double distance =
          std::abs((static_cast<double>(k + first) - center + 0.5) * (1.0 / filter_scale));
      exact[static_cast<size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += exact[static_cast<size_t>(k)];
    }
    taps.runs[static_cast<size_t>(i)] = {first, last - first};
    int32_t* weights = taps.weights.data() + i * taps.stride;
    for (int64_t k = 0; k < last - first; ++k) {
      const double weight = exact[static_cast<size_t>(k)] / sum;
      weights[k] = static_cast<int32_t>(0.5 + weight * (1 << kPrecisionBits));
    }
  }
  return taps;
}

/// Weighted sum of `count` values `step` bytes apart.
uint8_t blend(const uint8_t* from, int64_t step, const int32_t* weights, int64_t count) {
  int32_t sum = 1 << (kPrecisionBits - 1);
  for (int64_t k = 0; k < count; ++k) sum += from[k * step] * weights[k];
  return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

}  // namespace

ImageView view(const Image& image) {
  return {image.pixels.data(), image.height, image.width, image.channels,
          image.width * image.channels};
}

void resize_window(const ImageView& image, int64_t height, int64_t width, const Box& window,
                   std::span<uint8_t> out) {
  const Taps across = make_taps(image.width, width, window.left, window.width);
  const Taps down = make_taps(image.height, height, window.top, window.height);
  const int64_t channels = image.channels;
  const int64_t row = window.width * channels;

  // Across first, on the rows that the second pass will read.
  const int64_t first_row = down.runs.front().first;
  const int64_t rows = down.runs.back().first + down.runs.back().count - first_row;
  std::vector<uint8_t> narrowed(static_cast<size_t>(rows * row));
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* from = image.pixels + (first_row + y) * image.row_bytes;
    uint8_t* to = narrowed.data() + y * row;
    for (int64_t x = 0; x < window.width; ++x) {
      const auto [first, count] = across.runs[static_cast<size_t>(x)];
      for (int64_t c = 0; c < channels; ++c) {
        *to++ = blend(from + first * channels + c, channels,
                      across.weights.data() + x * across.stride, count);
      }
    }
  }
  uint8_t* to = out.data();
  for (int64_t y = 0; y < window.height; ++y) {
    const auto [first, count] = down.runs[static_cast<size_t>(y)];
    const uint8_t* from = narrowed.data() + (first - first_row) * row;
    for (int64_t x = 0; x < row; ++x) {
      *to++ = blend(from + x, row, down.weights.data() + y * down.stride, count);
    }
  }
}

}  // namespace brim::data
