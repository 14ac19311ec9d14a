// libjpeg-turbo reports errors by calling error_exit, which must not return: it jumps back to the
// setjmp of compress(), which holds no object with a destructor.
#include "framework/data/image/jpeg_encode.h"

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs FILE
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <array>
#include <cstdlib>

#include "framework/base/error.h"

namespace brim::data {
namespace {

struct Encoder {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* out = nullptr;  // by malloc
  unsigned long out_bytes = 0;

  Encoder() = default;
  ~Encoder() {
    jpeg_destroy_compress(&jpeg);
    std::free(out);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
};

[[noreturn]] void fail_encoding(j_common_ptr jpeg) {
  auto& encoder = *static_cast<Encoder*>(jpeg->client_data);
  jpeg->err->format_message(jpeg, encoder.message.data());
  std::longjmp(encoder.jump, 1);
}

/// False: it failed, and encoder.message says why.
bool compress(Encoder& encoder, const uint8_t* pixels, unsigned height, unsigned width,
              int quality) {
  auto& jpeg = encoder.jpeg;
  jpeg.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = fail_encoding;
  jpeg.client_data = &encoder;
  if (setjmp(encoder.jump) != 0) return false;
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, &encoder.out, &encoder.out_bytes);
  jpeg.image_height = height;
  jpeg.image_width = width;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < height) {
    auto* row = const_cast<uint8_t*>(pixels) + size_t{3} * width * jpeg.next_scanline;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  return true;
}

}  // namespace

std::vector<uint8_t> encode_jpeg(const Image& image, int quality, const std::string& name) {
  Encoder encoder;
  if (!compress(encoder, image.pixels.data(), static_cast<unsigned>(image.height),
                static_cast<unsigned>(image.width), quality)) {
    const bool is_memory = encoder.errors.msg_code == JERR_OUT_OF_MEMORY;
    throw Error(is_memory ? Exit::kResource : Exit::kData, "{}: cannot be written as JPEG: {}",
                name, encoder.message.data());
  }
  return {encoder.out, encoder.out + encoder.out_bytes};
}

}  // namespace brim::data
