#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/optim/schedules.h"

namespace brim::optim {
namespace {

constexpr RunLength kRun = {.steps = 100, .steps_per_epoch = 10};

template <class Config>
Config with_warmup(double length, Unit unit) {
  Config config;
  config.warmup = length;
  config.unit = unit;
  config.warmup_start = 0.1;
  return config;
}

std::string refusal(const ScheduleConfig& config) {
  try {
    config.build(1.0, kRun);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    return error.what();
  }
  return "";
}

TEST(Warmup, RunsFromItsStartToTheFullRate) {
  const auto schedule = with_warmup<ConstantConfig>(10, Unit::kSteps).build(2.0, kRun);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(5), 1.1);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(9), 2.0 * 0.91);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(10), 2.0);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(11), 2.0);
}

TEST(Warmup, CountsEpochsWhereAsked) {
  const auto schedule = with_warmup<ConstantConfig>(2.5, Unit::kEpochs).build(1.0, kRun);
  EXPECT_LT(schedule->learning_rate(24), 1.0);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(25), 1.0);
}

TEST(Warmup, MayFillTheRunButNotPassIt) {
  for (const auto& schedule : {with_warmup<CosineConfig>(100, Unit::kSteps).build(1.0, kRun),
                               with_warmup<LinearConfig>(10, Unit::kEpochs).build(1.0, kRun)}) {
    EXPECT_DOUBLE_EQ(schedule->learning_rate(99), 0.1 + 0.9 * 0.99);
    EXPECT_DOUBLE_EQ(schedule->learning_rate(100), 1.0);
  }
  EXPECT_NE(refusal(with_warmup<CosineConfig>(101, Unit::kSteps)).find("longer than the run"),
            std::string::npos);
  EXPECT_NE(refusal(with_warmup<ConstantConfig>(1e300, Unit::kEpochs)), "");
}

TEST(Cosine, EndsAtItsFinalFactorAndStaysThere) {
  CosineConfig config;
  config.final_factor = 0.25;
  const auto schedule = config.build(4.0, kRun);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(0), 4.0);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 2.5);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(100), 1.0);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(1000), 1.0);
}

TEST(Linear, FallsEvenly) {
  const auto schedule = LinearConfig().build(1.0, kRun);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(25), 0.75);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(100), 0.0);
}

TEST(Step, FallsAtTheMilestoneNotBefore) {
  StepConfig config;
  config.milestones = {3, 6};
  const auto schedule = config.build(1.0, kRun);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(29), 1.0);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(30), 0.1);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(59), 0.1);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(60), 0.1 * 0.1);
}

TEST(Step, WantsEitherAnIntervalOrMilestones) {
  StepConfig config;
  EXPECT_NE(refusal(config).find("neither"), std::string::npos);
  config.every = 3;
  EXPECT_EQ(refusal(config), "");
  config.milestones = {5};
  EXPECT_NE(refusal(config).find("both"), std::string::npos);
}

TEST(OneCycle, TakesRunsOfAnyLength) {
  for (const int64_t steps : {1, 2, 3, 4, 7}) {
    const auto schedule = OneCycleConfig().build(1.0, {.steps = steps, .steps_per_epoch = 1});
    for (int64_t step = 0; step <= steps; ++step) {
      const double rate = schedule->learning_rate(step);
      EXPECT_GE(rate, 1.0 / 25 / 1e4) << steps << ", " << step;
      EXPECT_LE(rate, 1.0) << steps << ", " << step;
    }
  }
}

/// patience 2, factor 0.1, monitoring the loss.
std::unique_ptr<Schedule> make_plateau(double final_factor = 0.0) {
  PlateauConfig config;
  config.patience = 2;
  config.threshold = 0.1;
  config.final_factor = final_factor;
  return config.build(1.0, kRun);
}

void observe_losses(Schedule& schedule, const std::vector<double>& losses) {
  for (const double loss : losses) schedule.observe({.loss = loss});
}

TEST(Plateau, HoldsWhileTheLossImproves) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {10, 8, 6, 4, 2, 1});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 1.0);
}

TEST(Plateau, FallsOnceItsPatienceIsSpent) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {10, 10, 10});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 1.0);
  observe_losses(*schedule, {10});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1);
}

TEST(Plateau, AnImprovementRestoresItsPatience) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {10, 10, 10, 5, 5, 5});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 1.0);
}

TEST(Plateau, AFallRestoresItsPatience) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {10, 10, 10, 10, 10, 10});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1);
  observe_losses(*schedule, {10});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1 * 0.1);
}

TEST(Plateau, AnImprovementUnderTheThresholdDoesNotCount) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {10, 9.5, 9.4, 9.3});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1);
}

TEST(Plateau, NanIsNoImprovement) {
  const auto schedule = make_plateau();
  observe_losses(*schedule, {NAN, NAN, NAN});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1);
}

TEST(Plateau, NeverFallsUnderItsFinalFactor) {
  const auto schedule = make_plateau(0.05);
  observe_losses(*schedule, std::vector<double>(20, 10.0));
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.05);
}

TEST(Plateau, WatchesAccuracyWhereAsked) {
  PlateauConfig config;
  config.metric = MonitoredMetric::kAccuracy;
  config.patience = 0;
  const auto schedule = config.build(1.0, kRun);
  schedule->observe({.loss = 1, .accuracy = 0.5});
  schedule->observe({.loss = 9, .accuracy = 0.6});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 1.0);
  schedule->observe({.loss = 0.1, .accuracy = 0.6});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 0.1);
}

TEST(Plateau, WarmsUpLikeTheOthers) {
  auto config = with_warmup<PlateauConfig>(10, Unit::kSteps);
  config.patience = 0;
  const auto schedule = config.build(1.0, kRun);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(0), 0.1);
  observe_losses(*schedule, {1, 1});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(5), 0.055);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(10), 0.1);
}

TEST(Plateau, ContinuesFromSavedState) {
  const auto first = make_plateau();
  observe_losses(*first, {10, 10, 10, 10, 1.0 / 3.0, 2, 2});
  const auto second = make_plateau();
  second->load(nlohmann::json::parse(first->state().dump()));
  EXPECT_EQ(second->state(), first->state()) << "to the bit";
  EXPECT_DOUBLE_EQ(second->learning_rate(50), 0.1);
  observe_losses(*second, {2});
  EXPECT_DOUBLE_EQ(second->learning_rate(50), 0.1 * 0.1);
}

TEST(Plateau, SavesStateBeforeItHasSeenAnything) {
  const auto schedule = make_plateau();
  schedule->load(nlohmann::json::parse(make_plateau()->state().dump()));
  observe_losses(*schedule, {10});
  EXPECT_DOUBLE_EQ(schedule->learning_rate(50), 1.0);
}

TEST(Schedule, RefusesTheStateOfAnother) {
  const auto expect_refused = [](Schedule& schedule, const nlohmann::json& state) {
    try {
      schedule.load(state);
      ADD_FAILURE() << "accepted " << state;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kCheckpoint);
    }
  };
  const auto plateau = make_plateau();
  const auto constant = ConstantConfig().build(1.0, kRun);
  EXPECT_TRUE(constant->state().is_object());
  EXPECT_NO_THROW(constant->load(nlohmann::json::object()));
  expect_refused(*constant, plateau->state());
  expect_refused(*plateau, constant->state());
  expect_refused(*plateau, nlohmann::json::array());
  expect_refused(*plateau, {{"factor", "x"}, {"bad", 0}, {"best", nullptr}});
}

}  // namespace
}  // namespace brim::optim
