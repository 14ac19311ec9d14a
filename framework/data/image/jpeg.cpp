// JPEG by libjpeg-turbo. The library reports errors by calling error_exit, which must not return:
// it jumps back to the setjmp of the function that called the library. Those functions hold no
// object with a destructor.
#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs FILE
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/data/image/image.h"
#include "framework/data/image/orientation.h"
#include "framework/data/loading/stages.h"

namespace brim::data {
namespace {

// A progressive file may hold millions of tiny scans, each a pass over all pixels.
constexpr int kMaxScans = 500;
constexpr int64_t kMaxScannedPixels = 20 * kMaxImagePixels;  // over all scans
constexpr unsigned kMarkerBytes = 0xffff;
// Sides are filled to a multiple of at most 32 pixels: blocks of 8, four of them together.
constexpr int64_t kMaxFill = 31 * (kMaxImageSide + kMaxImagePixels / kMaxImageSide + 1) + 31 * 31;
static_assert(3 * int64_t{sizeof(JCOEF)} * (kMaxImagePixels + kMaxFill) <=
              kMaxJpegCoefficientBytes);
constexpr std::string_view kExifPrefix("Exif\0\0", 6);

struct JpegDecoder {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool truncated = false;
  int64_t coefficient_bytes = 0;

  JpegDecoder() = default;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
};

JpegDecoder& decoder_of(j_common_ptr jpeg) { return *static_cast<JpegDecoder*>(jpeg->client_data); }

[[noreturn]] void fail_decoding(j_common_ptr jpeg) {
  JpegDecoder& decoder = decoder_of(jpeg);
  jpeg->err->format_message(jpeg, decoder.message.data());
  std::longjmp(decoder.jump, 1);
}

/// libjpeg continues after damage with gray pixels and a warning; here that is an error. Other
/// warnings (bytes between markers, odd version numbers) leave the pixels whole.
void on_message(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_JPEG_EOF) decoder_of(jpeg).truncated = true;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
      code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC) {
    fail_decoding(jpeg);
  }
}

/// The scans that an image of this size may have.
int max_scans(const jpeg_decompress_struct& jpeg) {
  const int64_t pixels = int64_t{jpeg.image_height} * int64_t{jpeg.image_width};
  return static_cast<int>(std::min<int64_t>(kMaxScans, kMaxScannedPixels / pixels));
}

void on_progress(j_common_ptr jpeg) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  const int limit = max_scans(*decompress);
  if (decompress->input_scan_number <= limit) return;
  JpegDecoder& decoder = decoder_of(jpeg);
  std::snprintf(decoder.message.data(), decoder.message.size(),
                "more than %d scans, of %u x %u pixels each", limit, decompress->image_width,
                decompress->image_height);
  std::longjmp(decoder.jump, 1);
}

/// What jpeg_start_decompress() would allocate for the coefficients of a JPEG in several scans
/// (libjpeg's jdcoefct.c); 0 for one scan. After jpeg_read_header(), in reach of a setjmp.
int64_t coefficient_bytes(jpeg_decompress_struct& jpeg) {
  if (!jpeg_has_multiple_scans(&jpeg)) return 0;
  const auto filled = [](int64_t blocks, int64_t factor) {
    return (blocks + factor - 1) / factor * factor;
  };
  int64_t bytes = 0;
  for (int i = 0; i < jpeg.num_components; ++i) {
    const jpeg_component_info& part = jpeg.comp_info[i];
    bytes += filled(part.width_in_blocks, part.h_samp_factor) *
             filled(part.height_in_blocks, part.v_samp_factor) * int64_t{sizeof(JBLOCK)};
  }
  return bytes;
}

/// Throws Error(kData) where the image is larger than the limits. After read_header().
void check_size(const JpegDecoder& decoder, const std::string& name) {
  const jpeg_decompress_struct& jpeg = decoder.jpeg;
  check_image_size(jpeg.image_height, jpeg.image_width, name);
  if (decoder.coefficient_bytes <= kMaxJpegCoefficientBytes) return;
  throw Error(
      Exit::kData,
      "{}: expected a JPEG whose scans take at most {} of memory, found {} for {} components "
      "of {} x {}. Save it as one of a single scan (baseline)",
      name, format_bytes(kMaxJpegCoefficientBytes), format_bytes(decoder.coefficient_bytes),
      jpeg.num_components, jpeg.image_width, jpeg.image_height);
}

/// Reads the header and chooses the output format. False: see decoder.message.
bool read_header(JpegDecoder& decoder, const uint8_t* bytes, size_t size) {
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  jpeg.err = jpeg_std_error(&decoder.errors);
  jpeg.client_data = &decoder;
  decoder.errors.error_exit = fail_decoding;
  decoder.errors.emit_message = on_message;
  decoder.progress.progress_monitor = on_progress;
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &decoder.progress;
  jpeg_mem_src(&jpeg, bytes, size);
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, kMarkerBytes);
  jpeg_read_header(&jpeg, TRUE);
  const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  decoder.coefficient_bytes = coefficient_bytes(jpeg);
  return true;
}

/// Decodes all rows to RGB. `line` has room for a row of four bytes a pixel. False: see
/// decoder.message.
bool read_rows(JpegDecoder& decoder, uint8_t* pixels, uint8_t* line) {
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_start_decompress(&jpeg);
  const size_t width = jpeg.output_width;
  while (jpeg.output_scanline < jpeg.output_height) {
    uint8_t* out = pixels + size_t{jpeg.output_scanline} * width * 3;
    if (jpeg.out_color_space == JCS_RGB) {
      jpeg_read_scanlines(&jpeg, &out, 1);
      continue;
    }
    jpeg_read_scanlines(&jpeg, &line, 1);
    // Inks are stored inverted, as Adobe does and as every reader assumes: 255 is no ink.
    for (size_t x = 0; x < width; ++x) {
      const int key = line[4 * x + 3];
      for (size_t c = 0; c < 3; ++c) {
        out[3 * x + c] = static_cast<uint8_t>((line[4 * x + c] * key + 127) / 255);
      }
    }
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

int orientation(const jpeg_decompress_struct& jpeg) {
  for (auto* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    if (data.size() >= kExifPrefix.size() &&
        std::equal(kExifPrefix.begin(), kExifPrefix.end(), data.begin(),
                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
      return exif_orientation(data.subspan(kExifPrefix.size()));
    }
  }
  return 1;
}

/// Room to each side of what is asked for, in pixels: colour is interpolated from neighbours.
constexpr int64_t kMargin = 2;

/// Decodes the columns from `left` on, `width` of them, and gives the rows that `resizer` needs to
/// it. False: see decoder.message. `to_end`: the rest is decoded too, for the sake of errors.
bool read_needed(JpegDecoder& decoder, int64_t left, int64_t width, bool to_end, Resizer& resizer) {
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  const Box needed = resizer.needed();
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_start_decompress(&jpeg);
  auto first_column = static_cast<JDIMENSION>(left);
  auto columns = static_cast<JDIMENSION>(width);
  if (columns < jpeg.output_width) jpeg_crop_scanline(&jpeg, &first_column, &columns);
  resizer.set_columns(first_column, columns);
  if (needed.top > 0) jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(needed.top));
  for (int64_t y = needed.top; y < needed.top + needed.height; ++y) {
    uint8_t* row = resizer.row(y);
    enter_stage(Stage::kDecode);
    jpeg_read_scanlines(&jpeg, &row, 1);
    enter_stage(Stage::kResize);
    resizer.take(y, row);
  }
  if (to_end) {
    uint8_t* row = resizer.row(0);
    while (jpeg.output_scanline < jpeg.output_height) jpeg_read_scanlines(&jpeg, &row, 1);
    jpeg_finish_decompress(&jpeg);
  }
  return true;
}

/// The greatest denominator of the size that the image may be decoded at: so that resizing still
/// has half as much again to choose from. libjpeg makes up for colour that was stored at half size
/// in both directions, but not in one alone; then it is twice as much.
int64_t greatest_shrink(const CropPlan& placement, const jpeg_decompress_struct& jpeg) {
  const jpeg_component_info& luma = jpeg.comp_info[0];
  const double spare = luma.h_samp_factor == luma.v_samp_factor ? 1.5 : 2.0;
  const double times =
      std::min(static_cast<double>(placement.source.height) / static_cast<double>(placement.height),
               static_cast<double>(placement.source.width) / static_cast<double>(placement.width));
  int64_t shrink = 8;
  while (shrink > 1 && times < spare * static_cast<double>(shrink)) shrink /= 2;
  return shrink;
}

bool ends_as_jpeg(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[bytes.size() - 2] == 0xff && bytes.back() == JPEG_EOI;
}

/// Whether nothing but coded values and restart markers lies before the last marker, which ends the
/// image: a byte 255 is a marker's unless 0 follows it.
bool is_one_scan_to_the_end(std::span<const uint8_t> coded) {
  if (!ends_as_jpeg(coded)) return false;
  const uint8_t* const end = coded.data() + coded.size() - 2;
  for (const uint8_t* byte = coded.data();; byte += 2) {
    byte = static_cast<const uint8_t*>(std::memchr(byte, 0xff, static_cast<size_t>(end - byte)));
    if (byte == nullptr) return true;
    const bool is_value = byte[1] == 0;
    const bool is_restart = byte[1] >= JPEG_RST0 && byte[1] < JPEG_RST0 + 8;
    if (!is_value && !is_restart) return false;
  }
}

bool has_usual_samples(const jpeg_decompress_struct& jpeg) {
  if (jpeg.num_components == 1) return jpeg.jpeg_color_space == JCS_GRAYSCALE;
  if (jpeg.num_components != 3 || jpeg.jpeg_color_space != JCS_YCbCr) return false;
  const jpeg_component_info* const part = jpeg.comp_info;
  return part[0].h_samp_factor <= 2 && part[0].v_samp_factor <= 2 && part[1].h_samp_factor == 1 &&
         part[1].v_samp_factor == 1 && part[2].h_samp_factor == 1 && part[2].v_samp_factor == 1;
}

[[noreturn]] void throw_jpeg_error(const JpegDecoder& decoder, const std::string& name) {
  if (decoder.truncated) throw Error(Exit::kData, "{}: truncated: the JPEG data ends early", name);
  throw Error(Exit::kData, "{}: damaged or unsupported JPEG: {}", name, decoder.message.data());
}

}  // namespace

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name) {
  JpegDecoder decoder;
  if (!read_header(decoder, bytes.data(), bytes.size())) throw_jpeg_error(decoder, name);
  check_size(decoder, name);
  Image image = allocate_rgb(decoder.jpeg.image_height, decoder.jpeg.image_width, name);
  const int turn = orientation(decoder.jpeg);  // now: the markers go when decoding ends
  std::vector<uint8_t> line(size_t{4} * decoder.jpeg.image_width);
  if (!read_rows(decoder, image.pixels.data(), line.data())) throw_jpeg_error(decoder, name);
  return apply_orientation(std::move(image), turn);
}

std::optional<ImageSize> plain_jpeg_size(std::span<const uint8_t> bytes) {
  JpegDecoder decoder;
  const jpeg_decompress_struct& jpeg = decoder.jpeg;
  if (!read_header(decoder, bytes.data(), bytes.size())) return std::nullopt;
  const int64_t height = jpeg.image_height;
  const int64_t width = jpeg.image_width;
  const bool is_plain = jpeg.data_precision == 8 && jpeg.progressive_mode == FALSE &&
                        jpeg.arith_code == FALSE && decoder.coefficient_bytes == 0 &&
                        has_usual_samples(jpeg) && orientation(jpeg) == 1;
  if (!is_plain || is_too_large(height, width)) return std::nullopt;
  const std::span<const uint8_t> coded(jpeg.src->next_input_byte, jpeg.src->bytes_in_buffer);
  if (!is_one_scan_to_the_end(coded)) return std::nullopt;
  return ImageSize{height, width};
}

bool draw_jpeg(std::span<const uint8_t> bytes, const std::string& name, const Place& place,
               const DrawOptions& options, std::span<uint8_t> out) {
  thread_local Resizer resizer;
  JpegDecoder decoder;
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  if (!read_header(decoder, bytes.data(), bytes.size())) throw_jpeg_error(decoder, name);
  check_size(decoder, name);
  if (jpeg.out_color_space != JCS_RGB || orientation(jpeg) != 1) return false;

  const CropPlan placement = place(jpeg.image_height, jpeg.image_width);
  const int64_t shrink = options.fast_decode ? greatest_shrink(placement, jpeg) : 1;
  if (options.fast_decode) {
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(shrink);
    jpeg.dct_method = JDCT_IFAST;
    jpeg.do_fancy_upsampling = FALSE;
  }
  resizer.start(placement, 3, options.filter, out, shrink);
  const Box needed = resizer.needed();
  const int64_t width = (jpeg.image_width + shrink - 1) / shrink;
  const int64_t left = std::max<int64_t>(needed.left - kMargin, 0);
  const int64_t right = std::min(needed.left + needed.width + kMargin, width);
  if (!read_needed(decoder, left, right - left, !ends_as_jpeg(bytes), resizer)) {
    throw_jpeg_error(decoder, name);
  }
  return true;
}

}  // namespace brim::data
