#include "framework/data/augment/sharpen.h"

#include "framework/data/augment/scratch.h"
#include "framework/data/simd_dispatch.h"

namespace brim::data {
namespace {

/// Values first … last - 1 of a row. Neighbours in a row are `step` values apart.
__attribute__((always_inline)) inline void sharpen_row(const uint8_t* __restrict above,
                                                       const uint8_t* __restrict own,
                                                       const uint8_t* __restrict below,
                                                       int64_t step, int64_t first, int64_t last,
                                                       float weight, uint8_t* __restrict out) {
  for (int64_t x = first; x < last; ++x) {
    const int sum = above[x - step] + above[x] + above[x + step] + own[x - step] + 5 * own[x] +
                    own[x + step] + below[x - step] + below[x] + below[x + step];
    // To nearest: (sum + 6) / 13, no sum lies halfway. The product is exact up to 13 · 255 + 6.
    const int mean = (sum + 6) * 5042 >> 16;
    const auto value = static_cast<float>(own[x]);
    const float sharp = value + (static_cast<float>(mean) - value) * weight;
    out[x] = static_cast<uint8_t>(static_cast<int>(limit(sharp, 0.0F, 255.0F)));
  }
}

}  // namespace

void adjust_sharpness(std::span<uint8_t> image, const ImageShape& shape, double factor) {
  if (shape.height <= 2 || shape.width <= 2) return;
  const int64_t row = shape.width * shape.channels;
  const uint8_t* before = copy_to_scratch(image).data();
  const auto weight = static_cast<float>(1 - factor);
  dispatch_simd([&]() __attribute__((always_inline)) {
    for (int64_t y = 1; y + 1 < shape.height; ++y) {
      const uint8_t* own = before + y * row;
      sharpen_row(own - row, own, own + row, shape.channels, shape.channels, row - shape.channels,
                  weight, image.data() + y * row);
    }
  });
}

}  // namespace brim::data
