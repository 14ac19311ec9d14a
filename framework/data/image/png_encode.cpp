#include "framework/data/image/png_encode.h"

#include <png.h>

#include "framework/base/error.h"

namespace brim::data {

std::vector<uint8_t> encode_png(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<uint8_t> file(bytes);
  if (png_image_write_to_memory(&png, file.data(), &bytes, /*convert_to_8bit=*/0,
                                image.pixels.data(), /*row_stride=*/0, nullptr) == 0) {
    throw Error(Exit::kResource, "an image of {} × {} pixels can't be encoded as PNG: {}",
                image.width, image.height, static_cast<const char*>(png.message));
  }
  file.resize(bytes);
  return file;
}

}  // namespace brim::data
