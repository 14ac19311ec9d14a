#include "framework/plan/ranking.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace brim::plan {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

Candidate candidate(Sharing sharing, int64_t peak_gib, double step_s, bool recomputes = false) {
  return {.strategy = {.sharing = sharing},
          .batch = {.micro = 4, .share = 16, .recomputes = recomputes},
          .recompute = recomputes ? std::vector<std::string>{"*"} : std::vector<std::string>{},
          .samples = 32,
          .peak_bytes = peak_gib * kGib,
          .cap_bytes = 80 * kGib,
          .time = {.compute_s = step_s}};
}

TEST(Ranking, TheFastestThatFitsIsFirst) {
  std::vector<Candidate> ways = {candidate(Sharing::kFsdp, 20, 1.2),
                                 candidate(Sharing::kDdp, 90, 1.0),
                                 candidate(Sharing::kZero1, 60, 1.1)};
  rank(ways);
  EXPECT_EQ(ways[0].strategy.sharing, Sharing::kZero1);
  EXPECT_EQ(ways[1].strategy.sharing, Sharing::kFsdp);
  EXPECT_FALSE(ways[2].fits());
  EXPECT_EQ(why(ways),
            "zero1 fits: 60.0 GiB of 80.0 GiB; ddp takes 90.0 GiB at least; fsdp would save 40.0 "
            "GiB and cost 9 %");
}

TEST(Ranking, WhatFillsTheCapToItsEdgeDoesNotFit) {
  EXPECT_TRUE(candidate(Sharing::kDdp, 76, 1).fits());
  EXPECT_FALSE(candidate(Sharing::kDdp, 79, 1).fits());
}

TEST(Ranking, OfEquallyFastOnesTheSimplestIsFirst) {
  std::vector<Candidate> ways = {candidate(Sharing::kZero1, 26, 1.000),
                                 candidate(Sharing::kDdp, 30, 1.009, /*recomputes=*/true),
                                 candidate(Sharing::kDdp, 38, 1.005)};
  rank(ways);
  EXPECT_EQ(ways[0].strategy.sharing, Sharing::kDdp);
  EXPECT_TRUE(ways[0].recompute.empty());
  EXPECT_EQ(why(ways),
            "ddp fits: 38.0 GiB of 80.0 GiB; zero1 would save 12.0 GiB and take as long");
  ways = {candidate(Sharing::kDdp, 38, 1.009), candidate(Sharing::kZero1, 26, 1.000)};
  rank(ways);
  EXPECT_THAT(why(ways), HasSubstr("; zero1 would save 12.0 GiB and take 1 % less time"));
}

TEST(Ranking, LinesOfTheRecipeNameTheWay) {
  Candidate way = candidate(Sharing::kFsdp, 20, 1, /*recomputes=*/true);
  way.strategy.shards = 8;
  EXPECT_EQ(
      recipe_lines(way),
      "[batch]\nglobal = 32\nmicro = 4\n[train]\nrecompute = [\"*\"]\n[distributed]\nstrategy = "
      "\"fsdp\"\nzero = false\nstages = 1\nshards = 8\n");
  EXPECT_THAT(recipe_lines(candidate(Sharing::kZero1, 20, 1)),
              HasSubstr("strategy = \"ddp\"\nzero = true\nstages = 1\nshards = 0\n"));
  way = candidate(Sharing::kStages, 20, 1);
  way.strategy.stages = 4;
  EXPECT_THAT(recipe_lines(way), HasSubstr("strategy = \"ddp\"\nzero = false\nstages = 4\n"));
}

TEST(Ranking, TheTableCountsWhatItLeavesOut) {
  std::vector<Candidate> ways(5, candidate(Sharing::kDdp, 40, 1));
  ways.push_back(candidate(Sharing::kDdp, 90, 1));
  const std::string text = table(ways, 3);
  EXPECT_THAT(text, HasSubstr("and 2 more that fit\n1 of 6 do not fit\n"));
  EXPECT_THAT(text, HasSubstr(" 50%"));
}

}  // namespace
}  // namespace brim::plan
