// Images that must be refused, in words, and image folders. That good images decode as they do in
// Pillow and torchvision is test_peer.py's.
#include "framework/data/image/image.h"

#include <gmock/gmock.h>

#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>
// clang-format on

#include <filesystem>
#include <fstream>

#include "framework/base/files.h"
#include "framework/data/image/orientation.h"
#include "framework/data/loader.h"
#include "framework/data/sources/image_folder.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Bytes = std::vector<uint8_t>;

/// A picture with some structure.
Bytes picture(int height, int width) {
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      pixels.insert(pixels.end(), {static_cast<uint8_t>(7 * x), static_cast<uint8_t>(5 * y),
                                   static_cast<uint8_t>(x * y)});
    }
  }
  return pixels;
}

Bytes jpeg(int height, int width, bool progressive = false) {
  const Bytes pixels = picture(height, width);
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &data, &size);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  if (progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + encoder.next_scanline * width * 3);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  Bytes result(data, data + size);
  jpeg_destroy_compress(&encoder);
  std::free(data);
  return result;
}

Bytes png(int height, int width) {
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

std::string error_of(const Bytes& bytes) {
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
  const auto corner = [](int64_t height, int64_t width) -> Placement {
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
    if (bytes[i] != 0xff || bytes[i + 1] != 0xc0) continue;
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
  EXPECT_EQ(error_of({}), "x: expected an image, found an empty file");
  EXPECT_EQ(error_of({'G', 'I', 'F', '8', '9'}),
            "x: expected a JPEG or PNG image, found a file that begins 47 49 46 38");
  EXPECT_THAT(error_of({0xff, 0xd8, 0xff}), StartsWith("x: truncated: the JPEG"));
  EXPECT_THAT(error_of({0x89, 'P', 'N', 'G'}), StartsWith("x: truncated: the PNG"));
}

TEST(ImageTest, ATruncatedFileIsAnErrorWhereverItEnds) {
  for (const Bytes& whole : {jpeg(40, 50), jpeg(40, 50, true), png(40, 50)}) {
    EXPECT_EQ(error_of(whole), "no error");
    for (size_t size = 4; size + 2 < whole.size(); ++size) {
      const Bytes bytes = {whole.begin(), whole.begin() + static_cast<long>(size)};
      EXPECT_THAT(error_of(bytes), StartsWith("x: truncated")) << size << " of " << whole.size();
      EXPECT_EQ(error_of_drawing(bytes, false), error_of(bytes));
      EXPECT_EQ(error_of_drawing(bytes, true), error_of(bytes));
    }
  }
}

TEST(ImageTest, FlippedBitsNeverDoHarm) {
  const auto flipped = [](Bytes bytes, size_t i) {
    bytes[i] ^= static_cast<uint8_t>(1 << (i % 8));
    return bytes;
  };
  for (const Bytes& whole : {jpeg(20, 30), jpeg(20, 30, true)}) {  // no checksums: some decode
    for (size_t i = 0; i < whole.size(); ++i) {
      error_of(flipped(whole, i));
      error_of_drawing(flipped(whole, i), i % 2 == 0);
    }
  }
  const Bytes whole = png(20, 30);
  for (size_t i = 0; i < whole.size(); ++i) {
    const Bytes bytes = flipped(whole, i);
    if (error_of(bytes) != "no error") continue;  // else the flip was outside the picture
    EXPECT_EQ(decode_image(bytes, "x").pixels, picture(20, 30)) << i;
  }
}

TEST(ImageTest, GiganticImagesAreRefusedBeforeAllocation) {
  EXPECT_EQ(error_of(with_jpeg_size(jpeg(8, 8), 20'000, 20'000)),
            "x: expected an image of at most 100 million pixels and 65500 a side, found 20000 x "
            "20000");
  EXPECT_THAT(error_of(with_png_size(png(8, 8), 20'000, 20'000)),
              HasSubstr("at most 100 million pixels"));
  EXPECT_THAT(error_of(with_png_size(png(8, 8), 1, 70'000)), HasSubstr("found 70000 x 1"));
  EXPECT_NE(error_of(with_jpeg_size(jpeg(8, 8), 1, 65'535)), "no error");
  EXPECT_NE(error_of(with_jpeg_size(jpeg(8, 8), 0, 8)), "no error");
}

TEST(ImageTest, AProgressiveFileWithEndlessScansIsRefused) {
  Bytes bytes = jpeg(16, 16, true);
  // Repeats the first scan, which decodes to the same whatever came before it.
  size_t begin = 0;
  while (bytes[begin] != 0xff || bytes[begin + 1] != 0xda) ++begin;
  size_t end = begin + 2;
  while (bytes[end] != 0xff || bytes[end + 1] == 0) ++end;
  const Bytes scan(bytes.begin() + static_cast<long>(begin),
                   bytes.begin() + static_cast<long>(end));
  EXPECT_EQ(error_of(bytes), "no error");
  for (int i = 0; i < 600; ++i) {
    bytes.insert(bytes.begin() + static_cast<long>(end), scan.begin(), scan.end());
  }
  EXPECT_EQ(error_of(bytes), "x: damaged or unsupported JPEG: more than 500 scans");
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

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    std::string name = (fs::temp_directory_path() / "brim_folder_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ImageFolderTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const Bytes& bytes) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
  ImageFolderConfig config() const {
    ImageFolderConfig result;
    result.train = root_ / "train";
    result.options.image_size = 16;
    result.options.resize = 18;
    return result;
  }
  std::string error() const {
    try {
      config().open_train({});
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      std::string text = error.what();
      EXPECT_THAT(text, StartsWith(root_.string() + "/"));
      return text.substr(root_.string().size() + 1);
    }
    return "no error";
  }

  fs::path root_;
};

TEST_F(ImageFolderTest, ClassesAreFoldersAndSamplesAreFilesInOrder) {
  put("train/dog/b.PNG", png(20, 30));
  put("train/dog/a.jpeg", jpeg(20, 30));
  put("train/dog/notes.txt", {});
  put("train/cat/deep/er/z.jpg", jpeg(30, 20));
  put("train/README", {});
  const auto dataset = as_images(config().open_train({}));
  EXPECT_THAT(dataset->class_names(), ElementsAre("cat", "dog"));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->name(0), EndsWith("train/cat/deep/er/z.jpg"));
  EXPECT_THAT(dataset->name(1), EndsWith("train/dog/a.jpeg"));
  EXPECT_THAT(dataset->name(2), EndsWith("train/dog/b.PNG"));
  EXPECT_EQ(dataset->shape(), (ImageShape{16, 16, 3}));
  Bytes pixels(16 * 16 * 3);
  EXPECT_EQ(dataset->read(0, nullptr, pixels), 0);
  EXPECT_EQ(dataset->read(2, nullptr, pixels), 1);
  EXPECT_EQ(config().open_eval(), nullptr);
}

TEST_F(ImageFolderTest, SaysWhatIsMissing) {
  EXPECT_EQ(error(), "train: cannot read the folder: No such file or directory");
  put("train/README", {});
  EXPECT_EQ(error(), "train: expected a folder for each class, found none");
  put("train/cat/a.jpg", {});
  put("train/cow/a.txt", {});
  EXPECT_EQ(error(), "train: found no .jpg, .jpeg, .png files in the class folder cow");
  put("train/dog/deep/a.txt", {});
  EXPECT_EQ(error(), "train: found no .jpg, .jpeg, .png files in the class folders cow, dog");
}

TEST_F(ImageFolderTest, LoopsOfLinksAreHarmlessAndOtherLinksAreFollowed) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("elsewhere/b.jpg", jpeg(20, 20));
  fs::create_directory_symlink(root_ / "train", root_ / "train/cat/up");
  fs::create_directory_symlink(root_ / "train/cat", root_ / "train/cat/self");
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "train/cat/there");
  fs::create_directory_symlink(root_ / "nowhere", root_ / "train/dangling");
  const auto dataset = as_images(config().open_train({}));
  EXPECT_THAT(dataset->class_names(), ElementsAre("cat"));
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(dataset->name(1), EndsWith("train/cat/there/b.jpg"));
}

TEST_F(ImageFolderTest, ABadFileIsNamedByTheLoader) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/cat/b.jpg", {});
  const auto dataset = as_images(config().open_train({}));
  for (const int64_t workers : {0, 2}) {
    Loader loader(*dataset, {.global_batch = 1, .micro_batch = 1, .workers = workers});
    ASSERT_NE(loader.next(), nullptr);
    try {
      loader.next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_EQ(error.what(), dataset->name(1) + ": expected an image, found an empty file");
    }
  }
}

/// Pixels of all samples over two epochs, augmented.
std::vector<Bytes> two_epochs(const Dataset& dataset) {
  std::vector<Bytes> result;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t i = 0; i < dataset.size(); ++i) {
      RandomStream random(1, epoch, static_cast<uint64_t>(i));
      result.emplace_back(static_cast<size_t>(dataset.sample_bytes()));
      dataset.read(i, &random, result.back());
    }
  }
  return result;
}

TEST_F(ImageFolderTest, ACacheOfAnySizeChangesNothing) {
  for (int i = 0; i < 6; ++i) {
    put("train/cat/" + std::to_string(i) + (i % 2 == 0 ? ".jpg" : ".png"),
        i % 2 == 0 ? jpeg(40 + i, 50) : png(40 + i, 50));
  }
  const AugmentConfig augment = {.flip = true, .crop = Crop::kRandomResized};
  const auto expected = two_epochs(*config().open_train(augment));
  for (const CacheKind kind : {CacheKind::kEncoded, CacheKind::kDecoded}) {
    for (const double gib : {1e-9, 1e-5, 1.0}) {
      ImageFolderConfig cached = config();
      cached.options.cache = kind;
      cached.options.cache_gib = gib;
      EXPECT_EQ(two_epochs(*cached.open_train(augment)), expected);
    }
  }
}

TEST_F(ImageFolderTest, WhatIsInTheCacheIsNotReadAgain) {
  put("train/cat/a.jpg", jpeg(20, 20));
  for (const CacheKind kind : {CacheKind::kEncoded, CacheKind::kDecoded}) {
    put("train/cat/a.jpg", jpeg(20, 20));
    ImageFolderConfig cached = config();
    cached.options.cache = kind;
    const auto dataset = cached.open_train({});
    Bytes pixels(16 * 16 * 3);
    dataset->read(0, nullptr, pixels);
    fs::remove(root_ / "train/cat/a.jpg");
    EXPECT_EQ(dataset->read(0, nullptr, pixels), 0);
  }
}

TEST_F(ImageFolderTest, AFileThatVanishesOrShrinksBetweenEpochsIsNamedOrSkipped) {
  for (const bool vanishes : {true, false}) {
    for (int i = 0; i < 4; ++i) put("train/cat/" + std::to_string(i) + ".jpg", jpeg(20, 20));
    const auto dataset = config().open_train({});
    Loader failing(*dataset, {.global_batch = 4, .micro_batch = 4, .workers = 2, .prefetch = 0});
    Loader skipping(*dataset, {.global_batch = 4,
                               .micro_batch = 4,
                               .workers = 2,
                               .prefetch = 0,
                               .on_error = OnError::kReplace});
    ASSERT_NE(failing.next(), nullptr);
    ASSERT_NE(skipping.next(), nullptr);
    if (vanishes) {
      fs::remove(root_ / "train/cat/2.jpg");
    } else {
      fs::resize_file(root_ / "train/cat/2.jpg", 100);
    }
    const auto read_until_error = [&] {
      for (int i = 0; i < 3; ++i) failing.next();
    };
    try {
      read_until_error();
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("train/cat/2.jpg"));
    }
    for (int i = 0; i < 3; ++i) ASSERT_NE(skipping.next(), nullptr);
    EXPECT_EQ(skipping.skipped(), 1);
  }
}

TEST_F(ImageFolderTest, EvaluationHasTheClassesOfTraining) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/dog/a.jpg", jpeg(20, 20));
  put("eval/cat/a.jpg", jpeg(20, 20));
  put("eval/owl/a.jpg", jpeg(20, 20));
  ImageFolderConfig both = config();
  both.eval = root_ / "eval";
  try {
    both.open_eval();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), EndsWith("only one of the two has dog, owl"));
  }
  fs::rename(root_ / "eval/owl", root_ / "eval/dog");
  EXPECT_EQ(both.open_eval()->size(), 2);
}

TEST_F(ImageFolderTest, ResizeBelowImageSizeIsRefused) {
  put("train/cat/a.jpg", jpeg(20, 20));
  ImageFolderConfig small = config();
  small.options.resize = 15;
  try {
    small.open_train({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_STREQ(error.what(),
                 "[data]: expected 'resize' to be at least image_size (16), found 15");
  }
}

}  // namespace
}  // namespace brim::data
