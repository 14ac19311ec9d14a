// Shares that follow what ranks show, for ranks of scripted speed.
#include "framework/distributed/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace brim::distributed {
namespace {

using Weights = std::vector<double>;

/// Where the shares settle, in at most 100 rounds.
Weights settle(Weights weights, const Weights& speeds) {
  for (int round = 0; round < 100; ++round) {
    const auto next = next_weights(weights, speeds);
    if (!next) return weights;
    weights = *next;
  }
  ADD_FAILURE() << "the shares never settle";
  return weights;
}

TEST(NextWeights, EqualRanksStayAsTheyAre) {
  EXPECT_EQ(next_weights({1, 1, 1}, {500, 505, 498}), std::nullopt);
}

TEST(NextWeights, HalfAsFastGetsHalf) {
  const Weights weights = settle({1, 1}, {1000, 500});
  EXPECT_NEAR(weights[1] / weights[0], 0.5, 0.05);
}

TEST(NextWeights, GoesHalfwayAtATime) {
  EXPECT_THAT(*next_weights({1, 1}, {1500, 500}),
              ::testing::ElementsAre(::testing::DoubleNear(1.25, 1e-9),
                                     ::testing::DoubleNear(0.75, 1e-9)));
}

TEST(NextWeights, NoRankIsLeftOutOrDrowned) {
  const Weights weights = settle({1, 1, 1, 1}, {10000, 1, 100, 100});
  double sum = 0;
  for (const double weight : weights) {
    EXPECT_GE(weight, 0.25 - 1e-9);
    EXPECT_LE(weight, 2 + 1e-9);
    sum += weight;
  }
  EXPECT_NEAR(sum, 4, 1e-6);
}

TEST(NextWeights, MeasuresThatMakeNoSenseChangeNothing) {
  EXPECT_EQ(next_weights({1, 1}, {0, 0}), std::nullopt);
  EXPECT_EQ(next_weights({1, 1}, {std::numeric_limits<double>::infinity(), 1}), std::nullopt);
  EXPECT_EQ(next_weights({1, 1}, {std::numeric_limits<double>::quiet_NaN(), 1}), std::nullopt);
}

}  // namespace
}  // namespace brim::distributed
