// Halves where memory runs out, and grows again.
#include "framework/train/step/micro_batch.h"

#include <gtest/gtest.h>

namespace brim::train {
namespace {

TEST(MicroBatch, HalvesDownToOneUnit) {
  MicroBatch micro(7, 1);
  EXPECT_TRUE(micro.halve(0, 7));
  EXPECT_EQ(micro.size(), 4);
  EXPECT_TRUE(micro.halve(0, 4));
  EXPECT_TRUE(micro.halve(0, 2));
  EXPECT_EQ(micro.size(), 1);
  EXPECT_FALSE(micro.halve(0, 1));
}

TEST(MicroBatch, HalvesWhatWasInUse) {
  MicroBatch micro(1000, 1);
  EXPECT_TRUE(micro.halve(0, 64));  // a rank's share of the global batch
  EXPECT_EQ(micro.size(), 32);
}

TEST(MicroBatch, KeepsPairsWhole) {
  MicroBatch micro(12, 2);
  EXPECT_TRUE(micro.halve(0, 12));
  EXPECT_EQ(micro.size(), 6);
  EXPECT_TRUE(micro.halve(0, 6));
  EXPECT_EQ(micro.size(), 4);
  EXPECT_TRUE(micro.halve(0, 4));
  EXPECT_EQ(micro.size(), 2);
  EXPECT_FALSE(micro.halve(0, 2));
}

TEST(MicroBatch, GrowsAgainLaterAndLaterStill) {
  MicroBatch micro(64, 1);
  EXPECT_FALSE(micro.grow(5));
  ASSERT_TRUE(micro.halve(10, 64));
  ASSERT_TRUE(micro.halve(10, 32));
  EXPECT_FALSE(micro.grow(109));
  EXPECT_TRUE(micro.grow(110));
  EXPECT_EQ(micro.size(), 32);
  EXPECT_FALSE(micro.grow(111));
  ASSERT_TRUE(micro.halve(111, 32));  // too early
  EXPECT_FALSE(micro.grow(310));
  EXPECT_TRUE(micro.grow(311));
  EXPECT_TRUE(micro.grow(511));
  EXPECT_EQ(micro.size(), 64);
  EXPECT_FALSE(micro.grow(100'000));
}

}  // namespace
}  // namespace brim::train
