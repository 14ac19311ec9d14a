// How parameters are split over ranks: completely, without overlap, and evenly in bytes.
#include <gtest/gtest.h>

#include <numeric>

#include "framework/distributed/sharded_optimizer.h"

namespace brim::distributed {
namespace {

std::vector<int64_t> load(const std::vector<Shard>& shards, const std::vector<RowSizes>& sizes,
                          int64_t world) {
  std::vector<int64_t> bytes(static_cast<size_t>(world));
  for (const Shard& shard : shards) {
    bytes[static_cast<size_t>(shard.owner)] += shard.rows * sizes[shard.parameter].row_bytes;
  }
  return bytes;
}

/// Rows of ResNet-50's largest, and an MLP of one large layer: the hard case.
const std::vector<RowSizes> kMlp = {{1024, 3136}, {1024, 4}, {1024, 4096}, {1024, 4}, {10, 4096},
                                    {10, 4}};

TEST(SplitOverRanks, EveryRowHasOneOwner) {
  for (const bool cuts : {false, true}) {
    const auto shards = split_over_ranks(kMlp, 3, cuts);
    for (size_t parameter = 0; parameter < kMlp.size(); ++parameter) {
      int64_t next = 0;
      for (const Shard& shard : shards) {
        if (shard.parameter != parameter) continue;
        EXPECT_EQ(shard.first_row, next);
        next += shard.rows;
        EXPECT_TRUE(cuts || shard.rows == kMlp[parameter].rows);
      }
      EXPECT_EQ(next, kMlp[parameter].rows);
    }
  }
}

TEST(SplitOverRanks, NoRankHasMoreThanItsPartAndATwentieth) {
  int64_t total = 0;
  for (const RowSizes& size : kMlp) total += size.rows * size.row_bytes;
  for (const int64_t world : {2, 3, 4, 8}) {
    for (const int64_t bytes : load(split_over_ranks(kMlp, world, true), kMlp, world)) {
      EXPECT_LE(static_cast<double>(bytes), static_cast<double>(total) / world * 1.05) << world;
    }
  }
}

TEST(SplitOverRanks, WholeParametersWhereRowsStayTogether) {
  const auto shards = split_over_ranks({{4, 100}, {2, 100}, {2, 100}}, 2, false);
  EXPECT_EQ(load(shards, {{4, 100}, {2, 100}, {2, 100}}, 2), (std::vector<int64_t>{400, 400}));
}

TEST(SplitOverRanks, MoreRanksThanRows) {
  const auto shards = split_over_ranks({{1, 4}}, 4, true);
  EXPECT_EQ(shards, (std::vector<Shard>{{0, 0, 1, 0}}));
}

}  // namespace
}  // namespace brim::distributed
