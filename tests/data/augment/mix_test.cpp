// What is drawn for a batch: pairs, shares, boxes. What becomes of pixels is
// transform_images_test.cpp's.
#include "framework/data/augment/mix.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "framework/base/error.h"
#include "framework/data/augment/beta.h"

namespace brim::data {
namespace {

constexpr ImageShape kShape = {48, 64, 3};

bool equal(const std::vector<ImageChange>& a, const std::vector<ImageChange>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

bool is_whole(const PixelRange& range) {
  return range.top == 0 && range.left == 0 && range.bottom == kShape.height &&
         range.right == kShape.width;
}

TEST(MixTest, BetaHasItsMoments) {
  for (const double alpha : {0.001, 0.1, 0.2, 0.8, 1.0, 2.5, 40.0}) {
    constexpr int kDraws = 40'000;
    RandomStream random(3, 1, 4);
    double sum = 0, squares = 0, fourths = 0, low = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw_beta(alpha, random);
      ASSERT_GE(x, 0);
      ASSERT_LE(x, 1);
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
      fourths += std::pow(x - 0.5, 4);
      low += x < 0.5 ? 1 : 0;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    const double kurtosis = 3 * (2 * alpha + 1) / (2 * alpha + 3);
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 0.03 * variance) << alpha;
    EXPECT_NEAR(fourths / kDraws, kurtosis * variance * variance, 0.06 * variance * variance)
        << alpha;
    EXPECT_NEAR(low / kDraws, 0.5, 0.0125) << alpha;
  }
}

TEST(MixTest, NothingIsDrawnByDefault) {
  EXPECT_TRUE(draw_changes({}, 1, 0, 0, 8, kShape).empty());
}

TEST(MixTest, ChoicesBelongToPositionsNotToBatches) {
  const MixConfig config = {.mixup = 0.2, .cutmix = 1, .erase = 0.5};
  const auto whole = draw_changes(config, 7, 3, 0, 64, kShape);
  for (const int64_t first : {0, 2, 30, 62}) {
    auto part = draw_changes(config, 7, 3, first, 2, kShape);
    for (ImageChange& change : part) change.partner += static_cast<int32_t>(first);
    EXPECT_TRUE(equal(part, {whole.begin() + first, whole.begin() + first + 2}));
  }
  EXPECT_FALSE(equal(whole, draw_changes(config, 7, 4, 0, 64, kShape)));
  EXPECT_FALSE(equal(whole, draw_changes(config, 8, 3, 0, 64, kShape)));
  EXPECT_THROW(draw_changes(config, 7, 3, 1, 2, kShape), Error);
  EXPECT_EQ(draw_changes({.erase = 1}, 7, 3, 1, 2, kShape).size(), 2);
}

TEST(MixTest, PairsShareTheirChoiceAndTheLastOddOneIsAlone) {
  const auto changes = draw_changes({.mixup = 0.4, .cutmix = 1}, 7, 0, 10, 101, kShape);
  std::set<float> shares;
  for (size_t i = 0; i + 1 < changes.size(); i += 2) {
    EXPECT_EQ(changes[i].partner, static_cast<int32_t>(i + 1));
    EXPECT_EQ(changes[i + 1].partner, static_cast<int32_t>(i));
    EXPECT_EQ(changes[i].own, changes[i + 1].own);
    EXPECT_EQ(std::memcmp(&changes[i].mixed, &changes[i + 1].mixed, sizeof(PixelRange)), 0);
    EXPECT_EQ(label_share(changes[i], kShape), label_share(changes[i + 1], kShape));
    shares.insert(label_share(changes[i], kShape));
  }
  EXPECT_GT(shares.size(), 40);  // one choice a pair
  EXPECT_EQ(changes.back().partner, -1);
  EXPECT_EQ(label_share(changes.back(), kShape), 1);
}

TEST(MixTest, MixupMixesWholeImagesInItsShare) {
  double sum = 0, squares = 0;
  const auto changes = draw_changes({.mixup = 0.2}, 7, 0, 0, 20'000, kShape);
  for (const ImageChange& change : changes) {
    ASSERT_TRUE(is_whole(change.mixed));
    ASSERT_NEAR(label_share(change, kShape), change.own, 1e-6);
    sum += change.own;
    squares += (change.own - 0.5) * (change.own - 0.5);
  }
  EXPECT_NEAR(sum / 20'000, 0.5, 0.02);
  EXPECT_NEAR(squares / 20'000, 1 / (4 * 1.4), 0.005);
}

TEST(MixTest, CutmixKeepsTheShareOfTheAreaOutsideItsBox) {
  int cut_off = 0;
  double share = 0;
  const auto changes = draw_changes({.cutmix = 1}, 7, 0, 0, 20'000, kShape);
  for (const ImageChange& change : changes) {
    const PixelRange& box = change.mixed;
    ASSERT_EQ(change.own, 0);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.bottom, kShape.height);
    ASSERT_LE(box.right, kShape.width);
    ASSERT_LE(box.top, box.bottom);
    ASSERT_LE(box.left, box.right);
    const double area = (box.bottom - box.top) * (box.right - box.left);
    ASSERT_NEAR(label_share(change, kShape), 1 - area / (48 * 64), 1e-6);
    share += label_share(change, kShape);
    cut_off += box.top == 0 || box.left == 0 ? 1 : 0;
  }
  EXPECT_GT(share / 20'000, 0.6);  // ½ before boxes are cut off
  EXPECT_LT(share / 20'000, 0.8);
  EXPECT_GT(cut_off, 5'000);
}

TEST(MixTest, BothMeansOneOfTheTwo) {
  int mixup = 0;
  const auto changes = draw_changes({.mixup = 1, .cutmix = 1}, 7, 0, 0, 10'000, kShape);
  for (const ImageChange& change : changes) mixup += change.own > 0 ? 1 : 0;
  EXPECT_NEAR(mixup, 5'000, 300);
}

TEST(MixTest, ErasedBoxesKeepToTheirLimits) {
  const auto changes = draw_changes({.erase = 0.25}, 7, 0, 0, 20'000, kShape);
  int erased = 0;
  double least = 1, most = 0, widest = 0, tallest = 0;
  for (const ImageChange& change : changes) {
    EXPECT_EQ(change.partner, -1);
    const double height = change.erased.bottom - change.erased.top;
    const double width = change.erased.right - change.erased.left;
    if (height == 0) continue;
    ++erased;
    ASSERT_GE(change.erased.top, 0);
    ASSERT_GE(change.erased.left, 0);
    ASSERT_LE(change.erased.bottom, kShape.height);
    ASSERT_LE(change.erased.right, kShape.width);
    least = std::min(least, height * width / (48 * 64));
    most = std::max(most, height * width / (48 * 64));
    widest = std::max(widest, width / height);
    tallest = std::max(tallest, height / width);
  }
  EXPECT_NEAR(erased, 5'000, 300);
  EXPECT_NEAR(least, 0.02, 0.003);
  EXPECT_NEAR(most, 0.33, 0.01);
  EXPECT_GT(widest, 2.8);
  EXPECT_LT(widest, 4.2);  // 1 / 0.3, but for rounding to pixels
  EXPECT_GT(tallest, 2.7);
  EXPECT_LT(tallest, 4.2);
}

TEST(MixTest, TheSmallestImagesWork) {
  for (const ImageShape& shape : {ImageShape{1, 1, 1}, {1, 9, 3}, {2, 2, 3}}) {
    for (const ImageChange& change :
         draw_changes({.mixup = 1, .cutmix = 1, .erase = 1}, 1, 0, 0, 200, shape)) {
      EXPECT_LE(change.erased.bottom, shape.height);
      EXPECT_LE(change.mixed.right, shape.width);
      const float share = label_share(change, shape);
      EXPECT_GE(share, 0);
      EXPECT_LE(share, 1);
    }
  }
}

}  // namespace
}  // namespace brim::data
