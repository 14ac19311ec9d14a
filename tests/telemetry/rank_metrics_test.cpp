#include "framework/telemetry/rank_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace brim::telemetry {
namespace {

using nlohmann::json;

TEST(RankFigures, TheSlowestIsComparedToTheMedianOfTheOthers) {
  const json metrics = rank_metrics({{1.5, 10}, {1.0, 10}, {3.0, 10}, {1.2, 10}});
  EXPECT_EQ(metrics.at("slowest"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("slowest_ratio"), 3.0 / 1.2);
  EXPECT_DOUBLE_EQ(metrics.at("slowest_to_rank_0"), 2.0);
  EXPECT_DOUBLE_EQ(metrics.at("largest_share_ratio"), 1.0);
}

TEST(RankFigures, OfTwoRanksOneIsTwiceAsSlowAsTheOther) {
  EXPECT_DOUBLE_EQ(rank_metrics({{1.0, 10}, {2.0, 10}}).at("slowest_ratio"), 2.0);
  EXPECT_DOUBLE_EQ(rank_metrics({{2.0, 10}, {1.0, 10}}).at("slowest_to_rank_0"), 1.0);
}

TEST(RankFigures, TheLargestShareIsComparedToTheMean) {
  const json metrics = rank_metrics({{1.0, 30}, {1.0, 31}, {1.0, 29}});
  EXPECT_NEAR(metrics.at("largest_share_ratio"), 31.0 / 30, 1e-12);
}

TEST(RankFigures, OneRankHasNoneAndNothingIsDividedByNothing) {
  EXPECT_TRUE(rank_metrics({}).is_null());
  EXPECT_TRUE(rank_metrics({{1.0, 5}}).is_null());
  EXPECT_EQ(rank_metrics({{0, 0}, {0, 0}}), (json{{"slowest", 0}}));
}

TEST(RankFigures, WorksAreSummedByRank) {
  std::vector<RankWork> sums;
  add_works(sums, {});
  EXPECT_TRUE(sums.empty());
  add_works(sums, {{1, 2}, {3, 4}});
  add_works(sums, {{10, 20}, {30, 40}});
  const std::vector<std::string> places = {"cuda:0 on a", "cuda:0 on b"};
  EXPECT_EQ(rank_record(places, sums),
            (json{{{"rank", 0}, {"place", "cuda:0 on a"}, {"busy_s", 11.0}, {"samples", 22}},
                  {{"rank", 1}, {"place", "cuda:0 on b"}, {"busy_s", 33.0}, {"samples", 44}}}));
  EXPECT_EQ(rank_record(places, {}), (json{{{"rank", 0}, {"place", "cuda:0 on a"}},
                                           {{"rank", 1}, {"place", "cuda:0 on b"}}}));
}

}  // namespace
}  // namespace brim::telemetry
