#include "framework/experiment/bench/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/experiment/bench/steady.h"

namespace brim::experiment {
namespace {

using Values = std::vector<double>;

// numpy.quantile([1, 2, 4, 8], [0, .25, .5, .95, 1])
TEST(Statistics, QuantilesAreThoseOfNumPy) {
  const Values values = {8, 1, 4, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(median(values), 3);
  EXPECT_NEAR(quantile(values, 0.95), 7.4, 1e-12);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 8);
  EXPECT_DOUBLE_EQ(median(Values{5}), 5);
}

// scipy.stats.variation([9, 10, 12, 13], ddof=1)
TEST(Statistics, CoefficientOfVariationIsThatOfSciPy) {
  EXPECT_NEAR(coefficient_of_variation(Values{9, 10, 12, 13}), 0.16597653257732306, 1e-12);
  EXPECT_EQ(coefficient_of_variation(Values{3}), 0);
}

// scipy.stats.quantile_test(x).confidence_interval(0.95): ranks 2 and 9 of ten.
TEST(Statistics, TheMedianLiesBetweenRanks) {
  const Interval ten = median_interval(Values{10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  EXPECT_EQ(ten.low, 20);
  EXPECT_EQ(ten.high, 90);
  EXPECT_NEAR(ten.confidence, 1 - 22.0 / 1024, 1e-12);
  const Interval six = median_interval(Values{6, 5, 4, 3, 2, 1});
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
  EXPECT_NEAR(six.confidence, 0.96875, 1e-12);
}

TEST(Statistics, TooFewValuesSayHowMuchTheyCover) {
  EXPECT_NEAR(median_interval(Values{1, 2, 3, 4, 5}).confidence, 0.9375, 1e-12);
  EXPECT_EQ(median_interval(Values{1}).confidence, 0);
  EXPECT_NEAR(ratio_of(Values{1, 2, 3}, Values{1, 2, 3}).interval.confidence, 0.9, 1e-12);
  EXPECT_EQ(ratio_of(Values{2}, Values{1}).interval.confidence, 0);
}

// Five against five: critical U is 2 in tables for 0.05, so the third ratio from either end bounds
// the interval, and it covers 1 - 2·4/252.
TEST(Statistics, RatiosAreBoundedByTheMannWhitneyTest) {
  const Values a = {1, 1, 1, 1, 1};
  const Values b = {1.5, 2, 3, 4, 5};  // each ratio five times
  const Ratio ratio = ratio_of(b, a);
  EXPECT_NEAR(ratio.value, 3, 1e-12);
  EXPECT_NEAR(ratio.interval.low, 1.5, 1e-12);
  EXPECT_NEAR(ratio.interval.high, 5, 1e-12);
  EXPECT_NEAR(ratio.interval.confidence, 1 - 8.0 / 252, 1e-12);
  const Ratio back = ratio_of(a, b);
  EXPECT_NEAR(back.value, 1 / ratio.value, 1e-12);
  EXPECT_NEAR(back.interval.high, 1 / ratio.interval.low, 1e-12);
}

// Hollander & Wolfe's method on logarithms, worked by numpy: sorted log ratios number 6 and 31 of
// 36 (critical U of six against six is 5), exp of them.
TEST(Statistics, RatiosOfSixAgainstSix) {
  const Values a = {101, 99, 103, 97, 100, 98};
  const Values b = {110, 108, 111, 107, 109, 112};
  std::vector<double> all;
  for (const double over : b) {
    for (const double under : a) all.push_back(over / under);
  }
  std::ranges::sort(all);
  const Ratio ratio = ratio_of(b, a);
  EXPECT_NEAR(ratio.interval.low, all[5], 1e-12);
  EXPECT_NEAR(ratio.interval.high, all[30], 1e-12);
  EXPECT_NEAR(ratio.value, std::sqrt(all[17] * all[18]), 1e-12);
}

TEST(Statistics, ManyValuesStayFinite) {
  const Ratio ratio = ratio_of(Values(100, 2.0), Values(100, 1.0));
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_NEAR(ratio.interval.confidence, 0.95, 0.001);
}

TEST(Steady, WarmUpEndsWhereStepsAreAsFastAsTheLast) {
  Values steps = {9, 5, 3, 2};
  steps.resize(30, 1.0);
  EXPECT_EQ(steady_from(steps, 20), 2U);  // three of the five steps from there on are fast
  EXPECT_EQ(steady_from(Values(8, 1.0), 8), 0U);
  EXPECT_EQ(steady_from(Values{7}, 1), 0U);
}

TEST(Steady, ASlowStepNowAndThenChangesNothing) {
  Values steps(40, 1.0);
  for (const size_t at : {0, 7, 19, 33, 39}) steps[at] = 50;
  EXPECT_EQ(steady_from(steps, 20), 0U);
}

TEST(Steady, ARunThatDriftsIsNotSteady) {
  Values slower;
  for (int i = 0; i < 40; ++i) slower.push_back(1 + 0.01 * i);
  EXPECT_EQ(steady_from(slower, 20), std::nullopt);
  EXPECT_EQ(steady_from(Values{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1}, 10),
            std::nullopt);
}

}  // namespace
}  // namespace brim::experiment
