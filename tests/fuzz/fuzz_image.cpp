// JPEG and PNG files: any bytes decode to a whole image or are refused by an Error; drawing a part
// of them does no harm.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "framework/base/error.h"
#include "framework/data/image/image.h"

namespace {

using brim::data::CropPlan;

/// A part that the bytes themselves choose.
void draw(std::span<const uint8_t> bytes, int64_t choice) {
  std::array<uint8_t, 9 * 7 * 3> out{};
  const auto place = [choice](int64_t height, int64_t width) -> CropPlan {
    const int64_t top = choice % height;
    const int64_t left = choice % width;
    return {{top, left, height - top, width - left}, 9, 7, {0, 0, 9, 7}};
  };
  brim::data::draw_image(bytes, "input", place, {.fast_decode = choice % 2 == 0}, out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto image = brim::data::decode_image(std::span(data, size), "input");
    const auto expected = static_cast<size_t>(image.height * image.width * image.channels);
    if (image.pixels.size() != expected || image.channels != 3) std::abort();
    draw({data, size}, data[size / 2]);
    const auto plain = brim::data::plain_jpeg_size(std::span(data, size));
    if (plain && (plain->height != image.height || plain->width != image.width)) std::abort();
  } catch (const brim::Error&) {
    brim::data::plain_jpeg_size(std::span(data, size));
  }
  return 0;
}
