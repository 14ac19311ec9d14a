// Which changes a sample gets. That each change is torchvision's is test_augment_peer.py's.
#include "framework/data/augment/policy.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <vector>

#include "framework/data/augment/augment.h"
#include "framework/data/augment/colour.h"
#include "framework/data/augment/warp.h"

namespace brim::data {
namespace {

using ::testing::ElementsAre;

constexpr ImageShape kPolicyShape = {17, 19, 3};

/// Noise in 20 … 219, so that every operation changes it.
std::vector<uint8_t> noise(const ImageShape& shape) {
  RandomStream random(9, 0, 0);
  std::vector<uint8_t> image(static_cast<size_t>(shape.bytes()));
  for (uint8_t& value : image) value = static_cast<uint8_t>(20 + random.below(200));
  return image;
}

std::vector<uint8_t> varied(const PolicyConfig& config, uint64_t sample,
                            const ImageShape& shape = kPolicyShape) {
  auto image = noise(shape);
  RandomStream random(1, 0, sample);
  vary_image(config, random, image, shape);
  return image;
}

TEST(PolicyTest, NothingIsChangedOrDrawnByDefault) {
  auto image = noise(kPolicyShape);
  RandomStream random(1, 2, 3), untouched(1, 2, 3);
  vary_image({}, random, image, kPolicyShape);
  EXPECT_EQ(image, noise(kPolicyShape));
  EXPECT_EQ(random.next_u32(), untouched.next_u32());
}

TEST(PolicyTest, TheStreamDecides) {
  for (const PolicyConfig& config :
       {PolicyConfig{.automatic = AutoAugment::kRandAugment},
        PolicyConfig{.automatic = AutoAugment::kTrivialAugment},
        PolicyConfig{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}}) {
    EXPECT_EQ(varied(config, 7), varied(config, 7));
    EXPECT_NE(varied(config, 7), varied(config, 8));
  }
}

TEST(PolicyTest, RandAugmentDrawsEachOperationAndSignEquallyOften) {
  const PolicyConfig config = {
      .automatic = AutoAugment::kRandAugment, .rand_ops = 1, .rand_magnitude = 20};
  std::map<std::vector<uint8_t>, double> expected;  // outcome to its probability
  for (int64_t i = 0; i < kImageOps; ++i) {
    const auto op = static_cast<ImageOp>(i);
    const double magnitude = magnitude_of(AutoAugment::kRandAugment, op, 20, kPolicyShape);
    for (const double sign : {1.0, -1.0}) {
      auto image = noise(kPolicyShape);
      apply(op, is_signed(op) ? sign * magnitude : magnitude, image, kPolicyShape);
      expected[image] += 1.0 / (2 * kImageOps);
    }
  }
  ASSERT_EQ(expected.size(), 9 * 2 + 5);
  constexpr int kSamples = 20'000;
  std::map<std::vector<uint8_t>, int> found;
  for (uint64_t sample = 0; sample < kSamples; ++sample) ++found[varied(config, sample)];
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [outcome, probability] : expected) {
    const double deviation = std::sqrt(kSamples * probability);
    EXPECT_NEAR(found[outcome], kSamples * probability, 5 * deviation);
  }
}

TEST(PolicyTest, RandAugmentChainsItsOperations) {
  const PolicyConfig one = {.automatic = AutoAugment::kRandAugment, .rand_ops = 1};
  const PolicyConfig five = {.automatic = AutoAugment::kRandAugment, .rand_ops = 5};
  int unchanged_by_one = 0, unchanged_by_five = 0;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    unchanged_by_one += varied(one, sample) == noise(kPolicyShape) ? 1 : 0;
    unchanged_by_five += varied(five, sample) == noise(kPolicyShape) ? 1 : 0;
  }
  EXPECT_GT(unchanged_by_one, 20);
  EXPECT_EQ(unchanged_by_five, 0);
}

TEST(PolicyTest, TrivialAugmentMakesOneChangeOfAnyStrength) {
  constexpr ImageShape kGrey = {2, 70, 1};
  std::map<std::vector<uint8_t>, int> translations;
  for (int64_t bin = 0; bin < kMagnitudeBins; ++bin) {
    const auto pixels = static_cast<int64_t>(
        magnitude_of(AutoAugment::kTrivialAugment, ImageOp::kTranslateX, bin, kGrey));
    for (const int64_t right : {pixels, -pixels}) {
      auto image = noise(kGrey);
      translate(image, kGrey, right, 0);
      translations[image] = 0;
    }
  }
  ASSERT_EQ(translations.size(), 61);  // 0 … 32 pixels without two, either way
  constexpr int kSamples = 30'000;
  int unchanged = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    const auto image = varied({.automatic = AutoAugment::kTrivialAugment}, sample, kGrey);
    const auto found = translations.find(image);
    if (found != translations.end()) ++found->second;
    if (image == noise(kGrey)) ++unchanged;
  }
  for (const auto& [image, count] : translations) {
    EXPECT_GT(count, 0.5 * kSamples / kImageOps / 62);
  }
  EXPECT_GT(unchanged, kSamples / kImageOps);
  EXPECT_LT(unchanged, 0.4 * kSamples);  // saturation and sharpness leave such images as they are
}

TEST(PolicyTest, JitterDrawsFactorsEvenlyFromTheirRange) {
  constexpr ImageShape kOne = {1, 1, 1};
  double least = 255, most = 0, sum = 0;
  constexpr int kSamples = 4000;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    std::vector<uint8_t> image = {100};
    RandomStream random(1, 0, sample);
    vary_image({.brightness = 0.5}, random, image, kOne);
    least = std::min<double>(least, image[0]);
    most = std::max<double>(most, image[0]);
    sum += image[0];
  }
  EXPECT_EQ(least, 50);
  EXPECT_EQ(most, 149);
  EXPECT_NEAR(sum / kSamples, 99.5, 2);
}

TEST(PolicyTest, JitterTakesItsChangesInEitherOrder) {
  constexpr ImageShape kTwo = {1, 2, 1};
  // Where contrast is lowered and brightness raised. Brightness first: the brighter value is cut to
  // 255, and contrast keeps the sum of both. Contrast first: the sum grows up to twice.
  int brightness_first = 0, contrast_first = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    std::vector<uint8_t> image = {250, 0};
    RandomStream random(1, 0, sample);
    vary_image({.brightness = 1, .contrast = 1}, random, image, kTwo);
    const int sum = image[0] + image[1];
    if (sum >= 252 && sum <= 255 && image[1] > 0) ++brightness_first;
    if (sum > 260) ++contrast_first;
  }
  EXPECT_GT(brightness_first, 150);
  EXPECT_GT(contrast_first, 150);
}

TEST(PolicyTest, ContrastSaturationAndHueAtTheirEnds) {
  std::vector<uint8_t> image = {250, 10, 10, 0, 0, 240};
  adjust_contrast(image, 3, 0);
  EXPECT_THAT(image, ElementsAre(54, 54, 54, 54, 54, 54));  // greys 81 and 27
  image = {250, 10, 10, 0, 0, 240};
  adjust_saturation(image, 3, 0);
  EXPECT_THAT(image, ElementsAre(81, 81, 81, 27, 27, 27));
  image = {250, 10, 10, 0, 0, 240};
  adjust_hue(image, 3, 0.5);
  EXPECT_THAT(image, ElementsAre(10, 250, 250, 240, 240, 0));
}

TEST(PolicyTest, TranslatingByMoreThanTheImageLeavesItBlack) {
  for (const auto& [right, down] : {std::pair{100, 0}, {-100, 0}, {0, 100}, {0, -100}, {4, -3}}) {
    std::vector<uint8_t> image(3 * 4 * 3, 9);
    translate(image, {3, 4, 3}, right, down);
    EXPECT_THAT(image, ::testing::Each(0));
  }
}

TEST(PolicyTest, IsPartOfTheAugmentationOfAnImage) {
  std::vector<uint8_t> image(48, 100);
  RandomStream random(1, 0, 0);
  augment_placed({4, 4, 3}, {.policy = {.brightness = 0.5}}, random, image);
  EXPECT_THAT(image, ::testing::Each(image[0]));
  EXPECT_NE(image[0], 100);
}

}  // namespace
}  // namespace brim::data
