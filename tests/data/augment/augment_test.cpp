// Cropping, flipping and resizing. That resizing equals Pillow's is test_peer.py's.
#include "framework/data/augment/augment.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "framework/base/error.h"

namespace brim::data {
namespace {

using ::testing::ElementsAre;

/// [height, width, 2] with pixels 1, 2, 3, …
Image numbered(int64_t height, int64_t width) {
  Image image = {height, width, 2, std::vector<uint8_t>(static_cast<size_t>(height * width * 2))};
  std::iota(image.pixels.begin(), image.pixels.end(), uint8_t{1});
  return image;
}

TEST(AugmentTest, FlipMirrorsPixelsNotChannelsAboutHalfTheTime) {
  const Image image = numbered(2, 3);
  int flips = 0;
  for (uint64_t sample = 0; sample < 1000; ++sample) {
    std::vector<uint8_t> out(12);
    RandomStream random(1, 0, sample);
    read_pixels(image.pixels.data(), {2, 3, 2}, {.flip = true}, &random, out);
    if (out == image.pixels) continue;
    EXPECT_THAT(out, ElementsAre(5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8));
    ++flips;
  }
  EXPECT_GT(flips, 430);
  EXPECT_LT(flips, 570);
}

TEST(AugmentTest, PadShiftsOverABlackBorderToEveryPlace) {
  const Image image = numbered(3, 4);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    std::vector<uint8_t> out(24);
    RandomStream random(1, 0, sample);
    read_pixels(image.pixels.data(), {3, 4, 2}, {.crop = Crop::kPad, .pad = 2}, &random, out);
    // Exactly one shift explains the result.
    int explained = 0;
    for (int64_t dy = -2; dy <= 2; ++dy) {
      for (int64_t dx = -2; dx <= 2; ++dx) {
        bool same = true;
        for (int64_t y = 0; y < 3; ++y) {
          for (int64_t x = 0; x < 4; ++x) {
            for (int64_t c = 0; c < 2; ++c) {
              const bool inside = y + dy >= 0 && y + dy < 3 && x + dx >= 0 && x + dx < 4;
              const int expected =
                  inside ? static_cast<int>(((y + dy) * 4 + x + dx) * 2 + c + 1) : 0;
              same = same && out[static_cast<size_t>((y * 4 + x) * 2 + c)] == expected;
            }
          }
        }
        if (!same) continue;
        ++explained;
        seen.insert({dy, dx});
      }
    }
    ASSERT_EQ(explained, 1);
  }
  EXPECT_EQ(seen.size(), 25);
}

TEST(AugmentTest, PadWiderThanTheImageIsHarmless) {
  const Image image = numbered(2, 2);
  for (uint64_t sample = 0; sample < 200; ++sample) {
    std::vector<uint8_t> out(8);
    RandomStream random(1, 0, sample);
    read_pixels(image.pixels.data(), {2, 2, 2}, {.crop = Crop::kPad, .pad = 9}, &random, out);
  }
}

TEST(AugmentTest, RandomResizedBoxKeepsToItsLimits) {
  const AugmentConfig config;
  double least = 1;
  double most = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    RandomStream random(1, 0, sample);
    const Box box = random_resized_box(300, 400, config, random);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 300);
    ASSERT_LE(box.left + box.width, 400);
    const double share = static_cast<double>(box.height * box.width) / (300 * 400);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    least = std::min(least, share);
    most = std::max(most, share);
    EXPECT_GT(ratio, 0.74);
    EXPECT_LT(ratio, 1.35);
  }
  EXPECT_GT(least, 0.078);
  EXPECT_LT(least, 0.1);
  EXPECT_GT(most, 0.95);
}

TEST(AugmentTest, RandomResizedBoxFallsBackToTheCentre) {
  RandomStream random(1, 0, 0);
  EXPECT_EQ(random_resized_box(1000, 10, {}, random), (Box{493, 0, 13, 10}));
  EXPECT_EQ(random_resized_box(10, 1000, {}, random), (Box{0, 493, 10, 13}));
  EXPECT_EQ(random_resized_box(65'500, 1, {.scale_min = 1}, random).width, 1);
}

TEST(AugmentTest, ContradictingLimitsAreRefused) {
  EXPECT_THROW((AugmentConfig{.scale_min = 0.9, .scale_max = 0.5}.check()), Error);
  EXPECT_THROW((AugmentConfig{.ratio_min = 2, .ratio_max = 1}.check()), Error);
  EXPECT_NO_THROW(AugmentConfig{}.check());
}

}  // namespace
}  // namespace brim::data
