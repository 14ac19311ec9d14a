// Images that must be refused, in words. That good images decode as they do in Pillow and
// torchvision is test_peer.py's.
#include "framework/data/image/image.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include "framework/base/error.h"
#include "framework/data/image/orientation.h"
#include "tests/data/pictures.h"

namespace brim::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string decoding_error(const Bytes& bytes) {
  try {
    decode_image(bytes, "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "no error";
}

/// The same for drawing the top left corner of the image.
std::string error_of_drawing(const Bytes& bytes, bool fast_decode) {
  Bytes out(4 * 4 * 3);
  const auto corner = [](int64_t height, int64_t width) -> CropPlan {
    return {{0, 0, std::min<int64_t>(height, 8), std::min<int64_t>(width, 8)}, 4, 4, {0, 0, 4, 4}};
  };
  try {
    draw_image(bytes, "x", corner, {.fast_decode = fast_decode}, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "no error";
}

/// Big-endian 16 bits at the frame header's height and width.
Bytes with_jpeg_size(Bytes bytes, int height, int width) {
  for (size_t i = 0; i + 9 < bytes.size(); ++i) {
    if (bytes[i] != 0xff || (bytes[i + 1] != 0xc0 && bytes[i + 1] != 0xc2)) continue;
    bytes[i + 5] = static_cast<uint8_t>(height >> 8);
    bytes[i + 6] = static_cast<uint8_t>(height);
    bytes[i + 7] = static_cast<uint8_t>(width >> 8);
    bytes[i + 8] = static_cast<uint8_t>(width);
    break;
  }
  return bytes;
}

Bytes with_png_size(Bytes bytes, uint32_t height, uint32_t width) {
  constexpr size_t kHeader = 12;  // "IHDR" with width and height behind it
  for (size_t i = 0; i < 4; ++i) {
    bytes[kHeader + 4 + i] = static_cast<uint8_t>(width >> (24 - 8 * i));
    bytes[kHeader + 8 + i] = static_cast<uint8_t>(height >> (24 - 8 * i));
  }
  const auto sum = static_cast<uint32_t>(crc32(0, bytes.data() + kHeader, 17));
  for (size_t i = 0; i < 4; ++i)
    bytes[kHeader + 17 + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
  return bytes;
}

TEST(ImageTest, PngKeepsEveryPixel) {
  const Image image = decode_image(png(13, 9), "x");
  EXPECT_EQ(image.height, 13);
  EXPECT_EQ(image.width, 9);
  EXPECT_EQ(image.pixels, picture(13, 9));
}

TEST(ImageTest, WhatIsNoImageIsRefused) {
  EXPECT_EQ(decoding_error({}), "x: expected an image, found an empty file");
  EXPECT_EQ(decoding_error({'G', 'I', 'F', '8', '9'}),
            "x: expected a JPEG or PNG image, found a file that begins 47 49 46 38");
  EXPECT_THAT(decoding_error({0xff, 0xd8, 0xff}), StartsWith("x: truncated: the JPEG"));
  EXPECT_THAT(decoding_error({0x89, 'P', 'N', 'G'}), StartsWith("x: truncated: the PNG"));
}

TEST(ImageTest, ATruncatedFileIsAnErrorWhereverItEnds) {
  for (const Bytes& whole : {jpeg(40, 50), jpeg(40, 50, {.progressive = true}), png(40, 50)}) {
    EXPECT_EQ(decoding_error(whole), "no error");
    for (size_t size = 4; size + 2 < whole.size(); ++size) {
      const Bytes bytes = {whole.begin(), whole.begin() + static_cast<long>(size)};
      EXPECT_THAT(decoding_error(bytes), StartsWith("x: truncated"))
          << size << " of " << whole.size();
      EXPECT_EQ(error_of_drawing(bytes, false), decoding_error(bytes));
      EXPECT_EQ(error_of_drawing(bytes, true), decoding_error(bytes));
    }
  }
}

TEST(ImageTest, FlippedBitsNeverDoHarm) {
  const auto flipped = [](Bytes bytes, size_t i) {
    bytes[i] ^= static_cast<uint8_t>(1 << (i % 8));
    return bytes;
  };
  for (const Bytes& whole :
       {jpeg(20, 30), jpeg(20, 30, {.progressive = true})}) {  // no checksums: some decode
    for (size_t i = 0; i < whole.size(); ++i) {
      decoding_error(flipped(whole, i));
      error_of_drawing(flipped(whole, i), i % 2 == 0);
    }
  }
  const Bytes whole = png(20, 30);
  for (size_t i = 0; i < whole.size(); ++i) {
    const Bytes bytes = flipped(whole, i);
    if (decoding_error(bytes) != "no error") continue;  // else the flip was outside the picture
    EXPECT_EQ(decode_image(bytes, "x").pixels, picture(20, 30)) << i;
  }
}

TEST(ImageTest, GiganticImagesAreRefusedBeforeAllocation) {
  EXPECT_EQ(decoding_error(with_jpeg_size(jpeg(8, 8), 20'000, 20'000)),
            "x: expected an image of at most 100 million pixels and 65500 a side, found 20000 x "
            "20000");
  EXPECT_THAT(decoding_error(with_png_size(png(8, 8), 20'000, 20'000)),
              HasSubstr("at most 100 million pixels"));
  EXPECT_THAT(decoding_error(with_png_size(png(8, 8), 1, 70'000)), HasSubstr("found 70000 x 1"));
  EXPECT_NE(decoding_error(with_jpeg_size(jpeg(8, 8), 1, 65'535)), "no error");
  EXPECT_NE(decoding_error(with_jpeg_size(jpeg(8, 8), 0, 8)), "no error");
}

/// A progressive file with its first scan `more` times more often, which decodes to the same
/// whatever came before it.
Bytes with_more_scans(const Bytes& bytes, int more) {
  size_t begin = 0;
  while (bytes[begin] != 0xff || bytes[begin + 1] != 0xda) ++begin;
  size_t end = begin + 2;
  while (bytes[end] != 0xff || bytes[end + 1] == 0) ++end;
  const auto first = bytes.begin() + static_cast<long>(begin);
  const auto last = bytes.begin() + static_cast<long>(end);
  Bytes result(bytes.begin(), last);
  for (int i = 0; i < more; ++i) result.insert(result.end(), first, last);
  result.insert(result.end(), last, bytes.end());
  return result;
}

TEST(ImageTest, AProgressiveFileWithEndlessScansIsRefused) {
  const Bytes bytes = jpeg(16, 16, {.progressive = true});
  EXPECT_EQ(decoding_error(bytes), "no error");
  EXPECT_EQ(decoding_error(with_more_scans(bytes, 600)),
            "x: damaged or unsupported JPEG: more than 500 scans, of 16 x 16 pixels each");
}

TEST(ImageTest, ScansOfALargeImageAreBounded) {
  EXPECT_EQ(decoding_error(with_more_scans(jpeg(2500, 2500, {.progressive = true}), 330)),
            "x: damaged or unsupported JPEG: more than 320 scans, of 2500 x 2500 pixels each");
}

TEST(ImageTest, CoefficientsOfSeveralScansAreBounded) {
  const Bytes bytes = jpeg(8, 8, {.progressive = true, .components = 4});
  EXPECT_EQ(decoding_error(bytes), "no error");
  // 4 components of 1188 x 1250 blocks of 64 coefficients of 2 bytes
  const std::string expected =
      "x: expected a JPEG whose scans take at most 640.0 MiB of memory, found 725.1 MiB for 4 "
      "components of 10000 x 9500. Save it as one of a single scan (baseline)";
  EXPECT_EQ(decoding_error(with_jpeg_size(bytes, 9500, 10'000)), expected);
  EXPECT_EQ(error_of_drawing(with_jpeg_size(bytes, 9500, 10'000), true), expected);
}

TEST(ImageTest, ALargeImageOfOneScanKeepsNoCoefficients) {
  EXPECT_THAT(error_of_drawing(with_jpeg_size(jpeg(8, 8), 10'000, 10'000), false),
              HasSubstr("premature end of data segment"));
}

TEST(ImageTest, WhatDecodersInHardwareTakeIsPlain) {
  const Bytes plain = jpeg(40, 50);
  ASSERT_TRUE(plain_jpeg_size(plain));
  EXPECT_EQ(plain_jpeg_size(plain)->height, 40);
  EXPECT_EQ(plain_jpeg_size(plain)->width, 50);
  EXPECT_TRUE(plain_jpeg_size(jpeg(40, 50, {.components = 1})));
  EXPECT_TRUE(plain_jpeg_size(jpeg(40, 50, {.restart_interval = 1})));
  EXPECT_TRUE(plain_jpeg_size(jpeg(40, 50, {.luma_samples = 1})));
  EXPECT_FALSE(plain_jpeg_size(jpeg(40, 50, {.luma_samples = 4})));
  EXPECT_FALSE(plain_jpeg_size(jpeg(40, 50, {.progressive = true})));
  EXPECT_FALSE(plain_jpeg_size(jpeg(40, 50, {.components = 4})));
  EXPECT_FALSE(plain_jpeg_size(jpeg(40, 50, {.is_turned = true})));
  EXPECT_FALSE(plain_jpeg_size(png(40, 50)));
  EXPECT_FALSE(plain_jpeg_size({}));
  EXPECT_FALSE(plain_jpeg_size(with_jpeg_size(plain, 65'501, 10)));
  for (size_t size = 0; size < plain.size(); ++size) {
    EXPECT_FALSE(plain_jpeg_size(std::span(plain).first(size))) << size;
  }
}

TEST(ImageTest, AJpegThatGoesOnBehindItsEndOrHasOtherMarkersIsNotPlain) {
  Bytes trailing = jpeg(40, 50);
  trailing.push_back(0);
  EXPECT_FALSE(plain_jpeg_size(trailing));
  const Bytes whole = jpeg(40, 50);
  const auto coded = static_cast<long>(whole.size() - 40);
  for (const uint8_t marker : {0xc4, 0xcf, 0xd9, 0xda, 0xfe, 0xff}) {
    Bytes bytes = whole;
    bytes.insert(bytes.begin() + coded, {0xff, marker});
    EXPECT_FALSE(plain_jpeg_size(bytes)) << int{marker};
  }
  Bytes cut = whole;
  cut[cut.size() - 3] = 0xff;  // whose second byte would be the end's first
  EXPECT_FALSE(plain_jpeg_size(cut));
}

TEST(OrientationTest, MalformedBlocksMeanUpright) {
  Bytes tiff = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0};
  EXPECT_EQ(exif_orientation(tiff), 6);
  for (size_t size = 0; size < tiff.size(); ++size) {
    EXPECT_EQ(exif_orientation(std::span(tiff).first(size)), 1);
  }
  tiff[19] = 9;
  EXPECT_EQ(exif_orientation(tiff), 1);
  tiff[7] = 0xff;  // the directory lies outside
  EXPECT_EQ(exif_orientation(tiff), 1);
  tiff[4] = 0xff;
  EXPECT_EQ(exif_orientation(tiff), 1);
}

}  // namespace
}  // namespace brim::data
