#include "framework/data/image/image.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "framework/data/loading/stages.h"

namespace brim::data {
namespace {

constexpr std::array<uint8_t, 3> kJpegMagic = {0xff, 0xd8, 0xff};
constexpr std::array<uint8_t, 4> kPngMagic = {0x89, 'P', 'N', 'G'};

bool starts_with(std::span<const uint8_t> bytes, std::span<const uint8_t> magic) {
  return bytes.size() >= magic.size() && std::ranges::equal(bytes.first(magic.size()), magic);
}

}  // namespace

Image decode_image(std::span<const uint8_t> bytes, const std::string& name) {
  if (starts_with(bytes, kJpegMagic)) return decode_jpeg(bytes, name);
  if (starts_with(bytes, kPngMagic)) return decode_png(bytes, name);
  if (bytes.empty()) throw Error(Exit::kData, "{}: expected an image, found an empty file", name);
  throw Error(Exit::kData, "{}: expected a JPEG or PNG image, found a file that begins {:02x}",
              name, fmt::join(bytes.first(std::min<size_t>(bytes.size(), 4)), " "));
}

void draw_image(std::span<const uint8_t> bytes, const std::string& name, const Place& place,
                const DrawOptions& options, std::span<uint8_t> out) {
  enter_stage(Stage::kDecode);
  if (starts_with(bytes, kJpegMagic) && draw_jpeg(bytes, name, place, options, out)) return;
  const Image image = decode_image(bytes, name);
  enter_stage(Stage::kResize);
  resize(view(image), place(image.height, image.width), options.filter, out);
}

bool is_too_large(int64_t height, int64_t width) {
  return height > kMaxImageSide || width > kMaxImageSide || height * width > kMaxImagePixels;
}

void check_image_size(int64_t height, int64_t width, const std::string& name) {
  if (height < 1 || width < 1) {
    throw Error(Exit::kData, "{}: expected an image with pixels, found {} x {}", name, width,
                height);
  }
  if (is_too_large(height, width)) {
    throw Error(Exit::kData,
                "{}: expected an image of at most {} million pixels and {} a side, found {} x {}",
                name, kMaxImagePixels / 1'000'000, kMaxImageSide, width, height);
  }
}

Image allocate_rgb(int64_t height, int64_t width, const std::string& name) {
  check_image_size(height, width, name);
  return {height, width, 3, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
}

}  // namespace brim::data
