// What TensorBoard is told of gradients.
#include "framework/train/observe/gradient_histograms.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>
#include <numeric>

namespace brim::train {
namespace {

using testing::ElementsAre;

struct Weights : nn::Model {
  explicit Weights(int64_t size) {
    first = register_parameter("first", at::zeros({size}));
    second = register_parameter("second", at::zeros({2, 2}));
  }
  at::Tensor forward(const at::Tensor& images) override { return images; }
  at::Tensor first, second;
};

telemetry::Histogram of_first(Weights& model, const at::Tensor& gradient,
                              const std::optional<at::Tensor>& scale = {}) {
  model.first.mutable_grad() = gradient;
  GradientHistograms histograms(model, 5);
  histograms.count(5, scale);
  const auto arrived = histograms.pop(/*wait=*/true);
  EXPECT_EQ(arrived->step, 5);
  EXPECT_EQ(arrived->histograms.at(0).first, "first");
  return arrived->histograms.at(0).second;
}

/// How many values lie in buckets up to `limit`.
double up_to(const telemetry::Histogram& histogram, double limit) {
  double sum = 0;
  for (size_t i = 0; i < histogram.limits.size(); ++i) {
    if (histogram.limits[i] <= limit) sum += histogram.counts[i];
  }
  return sum;
}

TEST(GradientHistograms, FallDueAsAsked) {
  const Weights model(1);
  EXPECT_FALSE(GradientHistograms(model, 0).falls_due(10));
  EXPECT_TRUE(GradientHistograms(model, 5).falls_due(10));
  EXPECT_FALSE(GradientHistograms(model, 5).falls_due(11));
}

TEST(GradientHistograms, CountValuesWhereTheyLie) {
  Weights model(6);
  const auto histogram = of_first(model, at::tensor({-2.0f, -0.1f, 0.0f, 0.3f, 0.3f, 7.0f}));
  EXPECT_EQ(histogram.minimum, -2.0f);
  EXPECT_EQ(histogram.maximum, 7.0f);
  EXPECT_EQ(histogram.count, 6);
  EXPECT_NEAR(histogram.sum, 5.5, 1e-6);
  EXPECT_NEAR(histogram.sum_of_squares, 4 + 0.01 + 2 * 0.09 + 49, 1e-5);
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  EXPECT_TRUE(std::is_sorted(histogram.limits.begin(), histogram.limits.end()));
  EXPECT_EQ(up_to(histogram, -1.9), 1);
  EXPECT_EQ(up_to(histogram, -0.08), 2);
  EXPECT_EQ(up_to(histogram, 0.25), 3);
  EXPECT_EQ(up_to(histogram, 0.36), 5);
  EXPECT_EQ(up_to(histogram, 8.1), 6);
}

TEST(GradientHistograms, ManyValuesAreCountedInPieces) {
  Weights model(600'000);
  at::Tensor values = at::full({600'000}, 0.5f);
  values[599'999] = -3.0f;
  const auto histogram = of_first(model, values);
  EXPECT_EQ(histogram.count, 600'000);
  EXPECT_EQ(histogram.minimum, -3.0f);
  EXPECT_EQ(histogram.maximum, 0.5f);
  EXPECT_EQ(up_to(histogram, 0.0), 1);
  EXPECT_EQ(up_to(histogram, 0.51), 600'000);
}

TEST(GradientHistograms, ValuesThatAreNotFiniteOrHugeCountFarOutOrNotAtAll) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Weights model(5);
  const auto histogram =
      of_first(model, at::tensor({kInfinity, -kInfinity, std::nanf(""), 1e30f, 1.0f}));
  EXPECT_EQ(histogram.count, 2);
  EXPECT_EQ(histogram.maximum, 1e30f);
  EXPECT_EQ(histogram.minimum, 1.0f);
  EXPECT_EQ(histogram.limits.back(), std::numeric_limits<double>::max());
}

TEST(GradientHistograms, TheScaleOfTheLossIsTakenOut) {
  Weights model(2);
  const auto histogram = of_first(model, at::tensor({1024.0f, -2048.0f}), at::tensor(1024.0f));
  EXPECT_EQ(histogram.minimum, -2.0f);
  EXPECT_EQ(histogram.maximum, 1.0f);
}

TEST(GradientHistograms, AParameterWithoutAGradientHasNone) {
  Weights model(2);
  model.second.mutable_grad() = at::ones({2, 2});
  GradientHistograms histograms(model, 1);
  histograms.count(1, {});
  const auto arrived = histograms.pop(/*wait=*/true);
  ASSERT_EQ(arrived->histograms.size(), 1);
  EXPECT_EQ(arrived->histograms[0].first, "second");
  EXPECT_EQ(arrived->histograms[0].second.count, 4);
  EXPECT_FALSE(histograms.pop(/*wait=*/true));
}

}  // namespace
}  // namespace brim::train
