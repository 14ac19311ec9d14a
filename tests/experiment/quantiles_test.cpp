#include "framework/experiment/quantiles.h"

#include <gtest/gtest.h>

namespace brim::experiment {
namespace {

TEST(Quantiles, AreWithinTwoPercent) {
  Quantiles quantiles;
  for (int i = 1; i <= 10000; ++i) quantiles.add(i * 1e-4);
  for (const double q : {0.01, 0.05, 0.5, 0.95, 0.99, 1.0}) {
    EXPECT_NEAR(quantiles.at(q), q, 0.02 * q);
  }
}

TEST(Quantiles, OneSlowStepDoesNotMoveTheMedian) {
  Quantiles quantiles;
  for (int i = 0; i < 99; ++i) quantiles.add(0.01);
  quantiles.add(5.0);
  EXPECT_NEAR(quantiles.at(0.5), 0.01, 2e-4);
  EXPECT_NEAR(quantiles.at(0.99), 0.01, 2e-4);
  EXPECT_NEAR(quantiles.at(1.0), 5.0, 0.1);
}

TEST(Quantiles, ValuesOutOfRangeAreCountedAtTheEnds) {
  Quantiles quantiles;
  EXPECT_EQ(quantiles.at(0.5), 0.0);
  for (const double value : {-3.0, 0.0, 1e-30, 1e300}) quantiles.add(value);
  EXPECT_EQ(quantiles.count(), 4);
  EXPECT_EQ(quantiles.at(0.75), 0.0);
  EXPECT_NEAR(quantiles.at(1.0), 1.15e18, 0.03e18);
}

TEST(Quantiles, OrderDoesNotMatter) {
  Quantiles rising;
  Quantiles falling;
  for (int i = 1; i <= 1000; ++i) {
    rising.add(i);
    falling.add(1001 - i);
  }
  for (const double q : {0.1, 0.5, 0.9}) EXPECT_EQ(rising.at(q), falling.at(q));
}

}  // namespace
}  // namespace brim::experiment
