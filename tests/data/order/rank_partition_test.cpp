// Parts of a step: whatever the weights, the ranks' parts lie side by side and leave nothing out.
#include "framework/data/order/rank_partition.h"

#include <gtest/gtest.h>

namespace brim::data {
namespace {

constexpr int64_t kRanks = 3;

TEST(RankPartition, AreEvenAtFirst) {
  const RankPartition shares(kRanks);
  for (int64_t count = 0; count < 20; ++count) {
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const int64_t size = shares.part(0, count, rank, false).count;
      EXPECT_LE(std::abs(size * kRanks - count), kRanks - 1) << count;
    }
  }
}

TEST(RankPartition, PartsFitTogetherInEveryStep) {
  RankPartition shares(kRanks);
  shares.change(10, {0.25, 2.0, 0.75});
  shares.change(20, {1.7, 0.3, 1.0});
  for (const bool pairs : {false, true}) {
    for (const int64_t step : {0, 9, 10, 19, 20, 1000}) {
      for (int64_t count = 0; count < 50; ++count) {
        int64_t next = 0;
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          const PositionRange part = shares.part(step, count, rank, pairs);
          EXPECT_EQ(part.first, next);
          EXPECT_GE(part.count, 0);
          EXPECT_TRUE(!pairs || part.first % 2 == 0);
          next += part.count;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(RankPartition, FollowTheWeightsOfTheStep) {
  RankPartition shares(2);
  shares.change(5, {1.5, 0.5});
  EXPECT_EQ(shares.part(4, 64, 0, false).count, 32);
  EXPECT_EQ(shares.part(5, 64, 0, false).count, 48);
  EXPECT_EQ(shares.part(900, 64, 1, false), (PositionRange{48, 16}));
}

}  // namespace
}  // namespace brim::data
