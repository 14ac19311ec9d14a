#include "framework/experiment/bench/trend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace brim::experiment {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

json machine(const std::string& cpu) {
  return {{"device", "cpu"},
          {"ranks", 1},
          {"machine", {{"cpu", cpu}, {"usable_cores", 2}, {"host", "somewhere"}}},
          {"build", {{"commit", "abc123"}}}};
}

BenchRecord result(const std::string& started, double samples_per_s,
                   const std::string& cpu = "Xeon", const std::string& name = "digits") {
  std::vector<double> runs;
  for (const double factor : {0.99, 1.0, 1.01, 1.005, 0.995})
    runs.push_back(factor * samples_per_s);
  return {.environment = machine(cpu),
          .started = started,
          .repeats = 5,
          .variants = {{.name = name, .recipe = "[run]\n", .steps = 8, .samples_per_s = runs}}};
}

TEST(Trend, PutsResultsInTheOrderOfTheirTimes) {
  // 12:30 in Paris is before 11:45 in Greenwich.
  const auto trends =
      trends_of({result("2026-11-21T11:45:00+0000", 300), result("2026-11-21T12:30:00+0100", 200),
                 result("2026-11-20T12:00:00+0000", 100)},
                0.02);
  ASSERT_EQ(trends.size(), 1U);
  std::vector<double> medians;
  for (const TrendPoint& point : trends[0].points) medians.push_back(point.samples_per_s);
  EXPECT_THAT(medians, ElementsAre(100, 200, 300));
  EXPECT_EQ(trends[0].machine, "cpu, 2 cores of Xeon");
  EXPECT_EQ(trends[0].points[0].commit, "abc123");
  EXPECT_LT(trends[0].points[0].interval.low, 100);
}

TEST(Trend, JudgesTheNewestByThoseBeforeIt) {
  const auto judged = [](double newest) {
    return trends_of(
        {result("2026-11-20T12:00:00+0000", 1000), result("2026-11-21T12:00:00+0000", 1000),
         result("2026-11-22T12:00:00+0000", newest)},
        0.02);
  };
  EXPECT_EQ(judged(1000)[0].verdict, Verdict::kSame);
  EXPECT_EQ(status_of(judged(1000)), 0);
  EXPECT_EQ(judged(900)[0].verdict, Verdict::kSlower);
  EXPECT_EQ(status_of(judged(900)), 10);
  EXPECT_EQ(status_of(judged(1200)), 0);
  EXPECT_NEAR(judged(900)[0].ratio->value, 0.9, 0.01);
  EXPECT_THAT(report(judged(900)), HasSubstr("as fast as the 2 before it"));
  EXPECT_THAT(report(judged(900)), HasSubstr(": slower\n"));
  EXPECT_EQ(to_json(judged(900))["status"], 10);
}

TEST(Trend, OneResultIsJudgedByNothing) {
  const auto trends = trends_of({result("2026-11-20T12:00:00+0000", 1000)}, 0.02);
  EXPECT_EQ(status_of(trends), 0);
  EXPECT_THAT(report(trends), HasSubstr("the first result"));
  EXPECT_TRUE(to_json(trends)["trends"][0]["verdict"].is_null());
}

TEST(Trend, OtherMachinesAndVariantsAreOtherTrends) {
  const auto trends =
      trends_of({result("2026-11-20T12:00:00+0000", 1000), result("2026-11-21T12:00:00+0000", 500),
                 result("2026-11-22T12:00:00+0000", 100, "EPYC"),
                 result("2026-11-23T12:00:00+0000", 10, "EPYC", "gpt2")},
                0.02);
  ASSERT_EQ(trends.size(), 3U);
  EXPECT_THAT(report(trends), HasSubstr(": slower"));
  EXPECT_EQ(status_of(trends), 0);  // the slower one on the Xeon is not the newest of all
}

TEST(Trend, SaysWhatMakesItDoubtful) {
  std::vector<BenchRecord> all = {result("2026-11-20T12:00:00+0000", 1000),
                                  result("2026-11-21T12:00:00+0000", 1100),
                                  result("2026-11-22T12:00:00+0000", 1050)};
  EXPECT_THAT(report(trends_of(all, 0.02)), HasSubstr("vary by 6.7 %"));
  EXPECT_THAT(report(trends_of(all, 0.02)), Not(HasSubstr("its recipe differs")));
  all[2].variants[0].recipe = "[run]\nseed = 1\n";
  all[2].variants[0].samples_per_s = {1050};
  EXPECT_THAT(report(trends_of(all, 0.02)), HasSubstr("its recipe differs"));
  EXPECT_THAT(report(trends_of(all, 0.02)), HasSubstr("--repeats 4 or more"));
}

TEST(Trend, AnEnvironmentOfAnotherKindIsOneOfItsOwn) {
  BenchRecord odd = result("no time at all", 1000);
  odd.environment = {{"machine", {1, 2}}, {"gpus", "none"}, {"device", json::object()}};
  EXPECT_EQ(trends_of({odd, result("2026-11-20T12:00:00+0000", 1000)}, 0.02).size(), 2U);
}

}  // namespace
}  // namespace brim::experiment
