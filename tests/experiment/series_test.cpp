#include "framework/experiment/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace brim::experiment {
namespace {

TEST(Series, FewPointsAreKeptAsTheyAre) {
  Series series;
  for (int step = 10; step <= 100; step += 10) series.add(step, step * 2.0);
  ASSERT_EQ(series.buckets().size(), 10U);
  EXPECT_EQ(series.buckets()[3].first_step, 40);
  EXPECT_EQ(series.buckets()[3].mean(), 80.0);
  EXPECT_EQ(series.mean(), 110.0);
  EXPECT_EQ(series.sum_after_first(), 1080.0);
}

TEST(Series, AMillionPointsKeepMeansAndExtremes) {
  Series series;
  double sum = 0;
  for (int step = 1; step <= 1'000'000; ++step) {
    double value = std::sin(step * 1e-5);
    if (step == 123'456) value = 50;
    if (step == 654'321) value = -50;
    sum += value;
    series.add(step, value);
  }
  EXPECT_LE(series.buckets().size(), Series::kMaxBuckets);
  EXPECT_GE(series.buckets().size(), Series::kMaxBuckets / 4);
  EXPECT_EQ(series.high(), 50);
  EXPECT_EQ(series.low(), -50);
  double bucket_sum = 0;
  int64_t count = 0;
  int64_t before = 0;
  bool has_spike = false;
  for (const Bucket& bucket : series.buckets()) {
    EXPECT_GT(bucket.first_step, before);
    EXPECT_LE(bucket.low, bucket.mean());
    EXPECT_GE(bucket.high, bucket.mean());
    before = bucket.last_step;
    bucket_sum += bucket.sum;
    count += bucket.count;
    has_spike |= bucket.high == 50 && bucket.first_step <= 123'456 && bucket.last_step >= 123'456;
  }
  EXPECT_TRUE(has_spike);
  EXPECT_EQ(count, 1'000'000);
  EXPECT_NEAR(bucket_sum, sum, 1e-6);
}

TEST(Series, StepsFarApartFit) {
  Series series;
  int64_t step = 1;
  for (int i = 0; i < 3000; ++i, step += int64_t{1} << 40) series.add(step, 1.0);
  EXPECT_LE(series.buckets().size(), Series::kMaxBuckets);
  EXPECT_EQ(series.count(), 3000);
}

TEST(Series, WhatIsNotFiniteIsLeftOutAndAStepThatFallsBackJoinsTheLast) {
  Series series;
  series.add(5, 1.0);
  series.add(6, std::numeric_limits<double>::quiet_NaN());
  series.add(7, std::numeric_limits<double>::infinity());
  series.add(2, 3.0);
  EXPECT_EQ(series.count(), 2);
  ASSERT_EQ(series.buckets().size(), 1U);
  EXPECT_EQ(series.buckets()[0].high, 3.0);
}

}  // namespace
}  // namespace brim::experiment
