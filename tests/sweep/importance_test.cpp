// Which keys the results of made-up trials depend on.
#include "framework/sweep/importance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace brim::sweep {
namespace {

/// Trials with a rate, a model and a seed; the metric is a function of the first two.
std::vector<Trial> trials(int count, const std::function<double(double, bool)>& metric) {
  std::vector<Trial> made;
  for (int i = 0; i < count; ++i) {
    const double rate = 0.01 * ((i * 7) % count + 1);
    const bool is_large = i % 2 == 1;
    Trial trial;
    trial.settings = {fmt::format("optimizer.learning_rate={}", rate),
                      fmt::format("model.name={}", is_large ? "resnet34" : "resnet18"),
                      fmt::format("run.seed={}", (i * 11) % 5)};
    trial.results = {{.step = 10, .metric = metric(rate, is_large)}, {.step = 90, .metric = 0.0}};
    made.push_back(trial);
  }
  return made;
}

double share(const std::vector<Importance>& all, const std::string& key) {
  for (const Importance& one : all) {
    if (one.key == key) return one.share;
  }
  return -1;
}

TEST(Importance, IsOfTheKeyThatResultsFollow) {
  const auto all = importance_of_keys({}, trials(40, [](double rate, bool) { return rate; }));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all.front().key, "optimizer.learning_rate");
  EXPECT_GT(all.front().share, 0.9);
  EXPECT_LT(share(all, "run.seed"), 0.1);
  EXPECT_LT(share(all, "model.name"), 0.1);
}

TEST(Importance, NeedsNoOrderOfTheValues) {
  const auto by_model = importance_of_keys(
      {}, trials(40, [](double rate, bool is_large) { return is_large ? 10 + rate : rate; }));
  EXPECT_EQ(by_model.front().key, "model.name");
  EXPECT_GT(by_model.front().share, 0.7);
  const auto best_in_the_middle = importance_of_keys(
      {}, trials(40, [](double rate, bool) { return -(rate - 0.2) * (rate - 0.2); }));
  EXPECT_EQ(best_in_the_middle.front().key, "optimizer.learning_rate");
  EXPECT_GT(best_in_the_middle.front().share, 0.7);
}

TEST(Importance, IsNotKnownFromFewTrialsNorFromEqualOnes) {
  EXPECT_TRUE(importance_of_keys({}, trials(9, [](double rate, bool) { return rate; })).empty());
  const auto equal = importance_of_keys({}, trials(20, [](double, bool) { return 1.0; }));
  for (const Importance& one : equal) EXPECT_EQ(one.share, 0.0) << one.key;
}

}  // namespace
}  // namespace brim::sweep
