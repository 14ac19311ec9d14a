#include "framework/data/augment/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "framework/data/augment/scratch.h"
#include "framework/data/simd_dispatch.h"

#define BRIM_INLINE __attribute__((always_inline))

namespace brim::data {
namespace {

constexpr int kRun = 64;  // pixels whose sources are computed together

double to_radians(double degrees) { return degrees * (std::numbers::pi / 180); }
double to_degrees(double radians) { return radians * (180 / std::numbers::pi); }

/// Where in the source a pixel comes from, both as distances from the image's centre:
/// x = xx · x' + xy · y' + x1, y = yx · x' + yy · y' + y1.
struct Mapping {
  double xx, xy, x1;
  double yx, yy, y1;
};

/// The inverse of: shear, then rotate, about the point (center_x, center_y). Angles in radians.
Mapping inverse_mapping(double rotation, double shear_x, double shear_y, double center_x,
                        double center_y) {
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -(a * std::tan(shear_x) + std::sin(rotation));
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = std::cos(rotation) - c * std::tan(shear_x);
  return {d,  -b, center_x - d * center_x + b * center_y,  //
          -c, a,  center_y + c * center_x - a * center_y};
}

/// One axis of a Mapping, scaled so that the image is the interval from -1 to 1, then to pixels.
struct Axis {
  float by_x, by_y, offset;  // of that interval
  float half;                // half the image's size
};

Axis make_axis(double by_x, double by_y, double offset, int64_t size) {
  const auto half = static_cast<float>(size) * 0.5F;
  return {static_cast<float>(by_x) / half, static_cast<float>(by_y) / half,
          static_cast<float>(offset) / half, half};
}

/// a · b + sum, rounded once: the product is exact in double.
BRIM_INLINE inline float fused(float a, float b, float sum) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) +
                            static_cast<double>(sum));
}

/// The pixel that is nearest to the source of (x, y); ties to even. Far outside is just outside.
BRIM_INLINE inline int nearest(const Axis& axis, float x, float y) {
  const float place = fused(y, axis.by_y, x * axis.by_x) + axis.offset;
  const float pixel = (place + 1.0F) * axis.half - 0.5F;
  const float within = limit(pixel, -2.0F, 2.0F * axis.half + 1.0F);
  constexpr float kToNearest = 1.5F * (1 << 23);  // adding it drops the fraction
  return static_cast<int>((within + kToNearest) - kToNearest);
}

/// The pixel that a pixel is copied from; x is negative where there is none.
struct Sources {
  int32_t x[kRun];
  int32_t y[kRun];
};

/// For the pixels (first_x + i, y).
BRIM_INLINE inline void find_sources(const Axis& across, const Axis& down, const ImageShape& shape,
                                     int64_t y, int64_t first_x, Sources& sources) {
  const auto width = static_cast<int32_t>(shape.width);
  const auto height = static_cast<int32_t>(shape.height);
  const float y0 = static_cast<float>(y) - static_cast<float>(height - 1) * 0.5F;
  const float x0 = static_cast<float>(first_x) - static_cast<float>(width - 1) * 0.5F;
  for (int i = 0; i < kRun; ++i) {
    const float x = x0 + static_cast<float>(i);
    const int from_x = nearest(across, x, y0);
    const int from_y = nearest(down, x, y0);
    const bool inside = (from_x < width) & (from_y >= 0) & (from_y < height);
    sources.x[i] = inside ? from_x : -1;
    sources.y[i] = from_y;
  }
}

template <int64_t kChannels>
void copy_pixels(const uint8_t* before, int64_t width, const Sources& sources, int64_t count,
                 uint8_t* out) {
  for (int64_t i = 0; i < count; ++i, out += kChannels) {
    if (sources.x[i] < 0) {
      std::memset(out, 0, kChannels);
    } else {
      std::memcpy(out, before + (sources.y[i] * width + sources.x[i]) * kChannels, kChannels);
    }
  }
}

void warp(std::span<uint8_t> image, const ImageShape& shape, const Mapping& mapping) {
  const Axis across = make_axis(mapping.xx, mapping.xy, mapping.x1, shape.width);
  const Axis down = make_axis(mapping.yx, mapping.yy, mapping.y1, shape.height);
  const uint8_t* before = copy_to_scratch(image).data();
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; x += kRun) {
      Sources sources;
      dispatch_simd([&]() BRIM_INLINE { find_sources(across, down, shape, y, x, sources); });
      const int64_t count = std::min<int64_t>(kRun, shape.width - x);
      uint8_t* out = image.data() + (y * shape.width + x) * shape.channels;
      (shape.channels == 1 ? copy_pixels<1> : copy_pixels<3>)(before, shape.width, sources, count,
                                                              out);
    }
  }
}

}  // namespace

void shear_x(std::span<uint8_t> image, const ImageShape& shape, double slope) {
  const double angle = to_radians(to_degrees(std::atan(slope)));
  warp(image, shape,
       inverse_mapping(0, angle, 0, -0.5 * static_cast<double>(shape.width),
                       -0.5 * static_cast<double>(shape.height)));
}

void shear_y(std::span<uint8_t> image, const ImageShape& shape, double slope) {
  const double angle = to_radians(to_degrees(std::atan(slope)));
  warp(image, shape,
       inverse_mapping(0, 0, angle, -0.5 * static_cast<double>(shape.width),
                       -0.5 * static_cast<double>(shape.height)));
}

void translate(std::span<uint8_t> image, const ImageShape& shape, int64_t right, int64_t down) {
  const int64_t row = shape.width * shape.channels;
  const int64_t shift = std::clamp(right, -shape.width, shape.width) * shape.channels;
  const int64_t kept = row - std::abs(shift);
  for (int64_t i = 0; i < shape.height; ++i) {
    // Rows are moved before others overwrite them.
    const int64_t y = down > 0 ? shape.height - 1 - i : i;
    uint8_t* to = image.data() + y * row;
    if (y < down || y - down >= shape.height) {
      std::memset(to, 0, static_cast<size_t>(row));
      continue;
    }
    const uint8_t* from = image.data() + (y - down) * row;
    std::memmove(to + std::max<int64_t>(shift, 0), from + std::max<int64_t>(-shift, 0),
                 static_cast<size_t>(kept));
    std::memset(shift > 0 ? to : to + kept, 0, static_cast<size_t>(row - kept));
  }
}

void rotate(std::span<uint8_t> image, const ImageShape& shape, double degrees) {
  const double turned = degrees - 360 * std::floor(degrees / 360);
  warp(image, shape, inverse_mapping(to_radians(-turned), 0, 0, 0, 0));
}

}  // namespace brim::data
