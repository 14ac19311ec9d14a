// Resizing as datasets use it: windows are parts of the whole, sizes don't matter, and the loops
// for RGB give what the loops for any number of channels give.
#include "framework/data/image/resize.h"

#include <gmock/gmock.h>

#include "framework/base/random.h"
#include "framework/data/augment/augment.h"

namespace brim::data {
namespace {

using ::testing::Each;

Image noise(int64_t height, int64_t width, int64_t channels) {
  Image image = {height, width, channels, {}};
  RandomStream random(5, static_cast<uint64_t>(height), static_cast<uint64_t>(width));
  for (int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(random.below(256)));
  }
  return image;
}

std::vector<uint8_t> resized(const Image& image, const CropPlan& placement,
                             Filter filter = Filter::kBilinear) {
  std::vector<uint8_t> out(
      static_cast<size_t>(placement.window.height * placement.window.width * image.channels));
  resize(view(image), placement, filter, out);
  return out;
}

CropPlan whole(const Image& image, int64_t height, int64_t width) {
  return {{0, 0, image.height, image.width}, height, width, {0, 0, height, width}};
}

constexpr std::array<std::pair<int64_t, int64_t>, 6> kSizes = {
    {{5, 7}, {64, 64}, {37, 10}, {1, 1}, {3, 120}, {90, 2}}};

TEST(ResizeTest, AFlatImageStaysFlat) {
  for (const uint8_t level : {0, 1, 201, 255}) {
    const Image image = {37, 53, 3, std::vector<uint8_t>(37 * 53 * 3, level)};
    for (const auto& [height, width] : kSizes) {
      EXPECT_THAT(resized(image, whole(image, height, width)), Each(level));
      EXPECT_THAT(resized(image, whole(image, height, width), Filter::kBicubic), Each(level));
    }
  }
}

TEST(ResizeTest, TheSameSizeIsACopy) {
  const Image image = noise(19, 41, 3);
  EXPECT_EQ(resized(image, whole(image, 19, 41)), image.pixels);
  EXPECT_EQ(resized(image, whole(image, 19, 41), Filter::kBicubic), image.pixels);
}

TEST(ResizeTest, AWindowIsAPartOfTheWhole) {
  const Image image = noise(31, 17, 2);
  const auto all = resized(image, whole(image, 40, 23));
  const auto part =
      resized(image, {{0, 0, 31, 17}, 40, 23, {.top = 28, .left = 11, .height = 9, .width = 5}});
  for (size_t y = 0; y < 9; ++y) {
    for (size_t x = 0; x < 5 * 2; ++x) {
      EXPECT_EQ(part[y * 10 + x], all[(y + 28) * 46 + 22 + x]);
    }
  }
}

TEST(ResizeTest, ASourceBoxIsAnImageOfItsOwn) {
  const Image image = noise(50, 70, 3);
  const Box box = {.top = 7, .left = 13, .height = 31, .width = 44};
  Image cut = {box.height, box.width, 3, {}};
  for (int64_t y = 0; y < box.height; ++y) {
    const auto from = image.pixels.begin() + ((box.top + y) * image.width + box.left) * 3;
    cut.pixels.insert(cut.pixels.end(), from, from + box.width * 3);
  }
  for (const auto& [height, width] : kSizes) {
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      EXPECT_EQ(resized(image, {box, height, width, {0, 0, height, width}}, filter),
                resized(cut, whole(cut, height, width), filter));
    }
  }
}

TEST(ResizeTest, ColourImagesAreResizedAsTheirPlanesAre) {
  for (const auto& [from_height, from_width] : kSizes) {
    const Image image = noise(from_height, from_width, 3);
    for (const auto& [height, width] : kSizes) {
      for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
        const auto colours = resized(image, whole(image, height, width), filter);
        for (size_t c = 0; c < 3; ++c) {
          Image plane = {from_height, from_width, 1, {}};
          for (size_t i = c; i < image.pixels.size(); i += 3) {
            plane.pixels.push_back(image.pixels[i]);
          }
          const auto expected = resized(plane, whole(plane, height, width), filter);
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(colours[3 * i + c], expected[i]);
          }
        }
      }
    }
  }
}

TEST(ResizeTest, AnExtremeShapeCostsItsWindowOnly) {
  const Image image = {1, 65'500, 3, std::vector<uint8_t>(65'500 * 3, 7)};
  const ImageShape shape = {224, 224, 3};
  // 256 × 16,768,000 pixels if done whole
  EXPECT_THAT(resized(image, place_whole(1, 65'500, shape, 256)), Each(7));
}

}  // namespace
}  // namespace brim::data
