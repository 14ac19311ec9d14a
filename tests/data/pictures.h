// Small JPEG and PNG files, made in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
// clang-format off
#include <jpeglib.h>
#include <png.h>
// clang-format on

namespace brim::data {

using Bytes = std::vector<uint8_t>;

inline Bytes smooth_picture(int height, int width) {
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      pixels.insert(pixels.end(),
                    {static_cast<uint8_t>(255 * x / width), static_cast<uint8_t>(255 * y / height),
                     static_cast<uint8_t>(128 * (x + y) / (width + height))});
    }
  }
  return pixels;
}

/// A picture with some structure.
inline Bytes picture(int height, int width) {
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      pixels.insert(pixels.end(), {static_cast<uint8_t>(7 * x), static_cast<uint8_t>(5 * y),
                                   static_cast<uint8_t>(x * y)});
    }
  }
  return pixels;
}

struct JpegOptions {
  bool progressive = false;
  int components = 3;        // 1: grey; 4: CMYK
  int luma_samples = 2;      // for one of colour, in a row; at most 2 in a column
  int restart_interval = 0;  // blocks between restart markers; 0: there are none
  bool is_turned = false;    // by its EXIF orientation
  bool is_smooth = false;    // without edges
};

inline Bytes jpeg(int height, int width, const JpegOptions& options = {}) {
  const int components = options.components;
  Bytes pixels = options.is_smooth ? smooth_picture(height, width) : picture(height, width);
  pixels.resize(static_cast<size_t>(height * width * components));
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &data, &size);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.input_components = components;
  encoder.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  encoder.restart_interval = static_cast<unsigned>(options.restart_interval);
  if (components == 3) {
    encoder.comp_info[0].h_samp_factor = options.luma_samples;
    encoder.comp_info[0].v_samp_factor = std::min(options.luma_samples, 2);
  }
  if (options.progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  if (options.is_turned) {
    const Bytes exif = {'E', 'x', 'i', 'f',  0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                        0,   1,   1,   0x12, 0, 3, 0,   0,   0, 1,  0, 6, 0, 0};
    jpeg_write_marker(&encoder, JPEG_APP0 + 1, exif.data(), static_cast<unsigned>(exif.size()));
  }
  while (encoder.next_scanline < encoder.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + encoder.next_scanline * width * components);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  Bytes result(data, data + size);
  jpeg_destroy_compress(&encoder);
  std::free(data);
  return result;
}

inline Bytes png(int height, int width) {
  const Bytes pixels = picture(height, width);
  png_image encoder{};
  encoder.version = PNG_IMAGE_VERSION;
  encoder.height = static_cast<png_uint_32>(height);
  encoder.width = static_cast<png_uint_32>(width);
  encoder.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&encoder, nullptr, &size, 0, pixels.data(), 0, nullptr);
  Bytes result(size);
  png_image_write_to_memory(&encoder, result.data(), &size, 0, pixels.data(), 0, nullptr);
  return result;
}

}  // namespace brim::data
