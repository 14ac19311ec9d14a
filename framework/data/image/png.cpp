// PNG by libpng. Like libjpeg it reports errors by a jump back to setjmp; the functions that call
// it hold no object with a destructor.
#include <png.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "framework/base/error.h"
#include "framework/data/image/image.h"
#include "framework/data/image/orientation.h"

namespace brim::data {
namespace {

struct PngDecoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const uint8_t> rest;
  std::array<char, 200> message{};
  bool truncated = false;

  PngDecoder() = default;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message.data(), decoder.message.size(), "%s", text);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, size_t size) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (size > decoder.rest.size()) {
    decoder.truncated = true;
    png_error(png, "truncated");
  }
  std::memcpy(to, decoder.rest.data(), size);
  decoder.rest = decoder.rest.subspan(size);
}

/// Reads up to the pixels and asks for 8-bit RGB. False: see decoder.message.
bool read_header(PngDecoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  png_set_read_fn(decoder.png, &decoder, on_read);
  // allocate_rgb() refuses large images, in words; nothing is allocated by their size before.
  png_set_user_limits(decoder.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_read_info(decoder.png, decoder.info);
  png_set_scale_16(decoder.png);
  png_set_palette_to_rgb(decoder.png);
  png_set_expand_gray_1_2_4_to_8(decoder.png);
  png_set_gray_to_rgb(decoder.png);
  png_set_strip_alpha(decoder.png);
  return true;
}

/// Decodes into `rows` and reads on to the file's end. False: see decoder.message.
bool read_rows(PngDecoder& decoder, png_bytepp rows) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  if (png_get_rowbytes(decoder.png, decoder.info) !=
      size_t{3} * png_get_image_width(decoder.png, decoder.info)) {
    png_error(decoder.png, "unexpected pixel format");
  }
  png_read_image(decoder.png, rows);
  png_read_end(decoder.png, decoder.info);
  return true;
}

int orientation(const PngDecoder& decoder) {
  png_uint_32 size = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(decoder.png, decoder.info, &size, &exif) == 0) return 1;
  return exif_orientation({exif, size});
}

[[noreturn]] void throw_png_error(const PngDecoder& decoder, const std::string& name) {
  if (decoder.truncated) throw Error(Exit::kData, "{}: truncated: the PNG data ends early", name);
  throw Error(Exit::kData, "{}: damaged or unsupported PNG: {}", name, decoder.message.data());
}

}  // namespace

Image decode_png(std::span<const uint8_t> bytes, const std::string& name) {
  PngDecoder decoder;
  decoder.rest = bytes;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) throw std::bad_alloc();
  if (!read_header(decoder)) throw_png_error(decoder, name);
  Image image = allocate_rgb(png_get_image_height(decoder.png, decoder.info),
                             png_get_image_width(decoder.png, decoder.info), name);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(image.pixels.data() + y * image.width * 3);
  }
  if (!read_rows(decoder, rows.data())) throw_png_error(decoder, name);
  return apply_orientation(std::move(image), orientation(decoder));
}

}  // namespace brim::data
