#include "framework/experiment/bench/comparison.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/base/error.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

BenchRecord record(const std::vector<RecordedVariant>& variants, json environment = {{"x", 1}}) {
  return {.environment = std::move(environment),
          .started = "2026-11-21T12:00:00+0000",
          .repeats = 5,
          .variants = variants};
}

RecordedVariant variant(const std::string& name, std::vector<double> samples_per_s) {
  return {.name = name, .recipe = "", .steps = 10, .samples_per_s = std::move(samples_per_s)};
}

const std::vector<double> kHundred = {99, 100, 101, 100.5, 99.5};

std::vector<double> times(double factor) {
  std::vector<double> result = kHundred;
  for (double& value : result) value *= factor;
  return result;
}

int status(const std::vector<double>& b) {
  return status_of(compare(record({variant("a", kHundred)}), record({variant("b", b)}), 0.02));
}

Verdict judged(double low, double high, double confidence = 0.96) {
  return judge({1.0, {low, high, confidence}}, 0.02);
}

TEST(Comparison, VerdictsFollowTheInterval) {
  EXPECT_EQ(judged(1.03, 1.06), Verdict::kFaster);
  EXPECT_EQ(judged(1.01, 1.03), Verdict::kFaster);
  EXPECT_EQ(judged(0.99, 1.01), Verdict::kSame);
  EXPECT_EQ(judged(0.985, 0.995), Verdict::kSame);
  EXPECT_EQ(judged(0.99, 1.3), Verdict::kSame);  // not slower, in any case
  EXPECT_EQ(judged(0.90, 0.97), Verdict::kSlower);
  EXPECT_EQ(judged(0.97, 0.99), Verdict::kSlower);
  EXPECT_EQ(judged(0.90, 1.1), Verdict::kTooNoisy);
  EXPECT_EQ(judged(0.99, 1.01, 0.9), Verdict::kTooNoisy);
}

TEST(Comparison, TheStatusIsThatOfTheWorstVariant) {
  EXPECT_EQ(status(times(1.0)), 0);
  EXPECT_EQ(status(times(1.2)), 0);
  EXPECT_EQ(status(times(0.8)), 10);
  EXPECT_EQ(status({50, 200, 100, 70, 140}), 11);
  EXPECT_EQ(status({100}), 11);
  const auto both = [](double x, double y) {
    return status_of(compare(record({variant("x", kHundred), variant("y", kHundred)}),
                             record({variant("x", times(x)), variant("y", times(y))}), 0.02));
  };
  EXPECT_EQ(both(1, 1.5), 0);
  EXPECT_EQ(both(1.5, 0.5), 10);
}

TEST(Comparison, TooFewRunsAreNoted) {
  const auto text = [](const std::vector<double>& b) {
    return report(compare(record({variant("a", kHundred)}), record({variant("a", b)}), 0.02));
  };
  EXPECT_EQ(text(times(1.2)).find("too few runs"), std::string::npos);
  EXPECT_NE(text({100}).find("too few runs"), std::string::npos);
}

TEST(Comparison, VariantsAreMatchedByName) {
  const BenchRecord a = record({variant("x", kHundred), variant("y", kHundred)});
  const BenchRecord b = record({variant("z", kHundred), variant("y", times(2))});
  const Comparison found = compare(a, b, 0.02);
  ASSERT_EQ(found.variants.size(), 1U);
  EXPECT_NEAR(found.variants[0].ratio.value, 2, 0.02);
  EXPECT_EQ(found.unmatched, (std::vector<std::string>{"only in A: x", "only in B: z"}));
  EXPECT_EQ(compare(record({variant("w", kHundred)}), a, 0.02).variants.size(), 2U);
  EXPECT_THROW(compare(a, record({variant("p", kHundred), variant("q", kHundred)}), 0.02), Error);
}

TEST(Comparison, DifferencesOfEnvironmentAreListed) {
  const json here = {{"machine", {{"cpu", "A"}, {"cores", 2}}}, {"gpus", json::array()}};
  const json there = {{"machine", {{"cpu", "B"}, {"cores", 2}}}, {"gpus", {{{"name", "H200"}}}}};
  const Comparison found = compare(record({variant("a", kHundred)}, here),
                                   record({variant("a", kHundred)}, there), 0.02);
  const std::string text = report(found);
  EXPECT_NE(text.find("\"machine/cpu\": \"A\" in A, \"B\" in B"), std::string::npos) << text;
  EXPECT_NE(text.find("gpus/0/name\": nothing in A, \"H200\" in B"), std::string::npos) << text;
  EXPECT_EQ(text.find("cores"), std::string::npos) << text;
  EXPECT_TRUE(compare(record({variant("a", kHundred)}, json::object()),
                      record({variant("a", kHundred)}, json::object()), 0.02)
                  .differences.empty());
}

}  // namespace
}  // namespace brim::experiment
