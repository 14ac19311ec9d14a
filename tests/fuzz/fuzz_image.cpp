// JPEG and PNG files: any bytes decode to a whole image or are refused by an Error.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "framework/base/error.h"
#include "framework/data/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto image = brim::data::decode_image(std::span(data, size), "input");
    const auto expected = static_cast<size_t>(image.height * image.width * image.channels);
    if (image.pixels.size() != expected || image.channels != 3) std::abort();
  } catch (const brim::Error&) {
  }
  return 0;
}
