// Images in memory: what was put in is found, the budget holds, and a dataset gives the same bytes
// with a cache and without.
#include "framework/data/image/image_cache.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

namespace brim::data {
namespace {

using ::testing::HasSubstr;

TEST(ImageCacheTest, GivesBackWhatWasPutIn) {
  ImageCache cache(3, 1 << 20);
  EXPECT_EQ(cache.find(1), nullptr);
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6};
  cache.add(1, {1, 2, bytes});
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(cache.find(1)->width, 2);
  EXPECT_THAT(cache.find(1)->bytes, ::testing::ElementsAreArray(bytes));
  EXPECT_NE(cache.find(1)->bytes.data(), bytes.data());
  EXPECT_EQ(cache.find(0), nullptr);
  EXPECT_EQ(cache.count(), 1);
}

TEST(ImageCacheTest, KeepsToItsBudgetAndSaysWhenItIsFull) {
  const std::vector<uint8_t> image(1000);
  ImageCache cache(100, 5'000);
  ::testing::internal::CaptureStderr();
  for (int64_t i = 0; i < 100; ++i) cache.add(i, {.bytes = image});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(cache.bytes(), 5'000);
  EXPECT_GE(cache.count(), 3);
  EXPECT_LE(cache.count(), 4);
  EXPECT_THAT(said, HasSubstr("the cache is full with " + std::to_string(cache.count()) +
                              " of 100 images"));
  EXPECT_EQ(said.find("the cache is full"), said.rfind("the cache is full"));
}

TEST(ImageCacheTest, ThreadsThatComeTogetherCountOnce) {
  const std::vector<uint8_t> image(100, 7);
  ImageCache cache(50, 1 << 20);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t i = 0; i < 50; ++i) {
          cache.add(i, {.bytes = image});
          EXPECT_EQ(cache.find(i)->bytes[99], 7);
        }
      });
    }
  }
  EXPECT_EQ(cache.count(), 50);
  ImageCache alone(50, 1 << 20);
  for (int64_t i = 0; i < 50; ++i) alone.add(i, {.bytes = image});
  EXPECT_EQ(cache.bytes(), alone.bytes());
}

}  // namespace
}  // namespace brim::data
