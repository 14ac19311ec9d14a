// Which trial ASHA runs next, in each of its situations.
#include "framework/sweep/asha.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace brim::sweep {
namespace {

Plan plan(std::vector<int64_t> rungs, bool is_lower_better = false) {
  Plan made;
  made.rungs = std::move(rungs);
  made.reduction = 2;
  made.is_lower_better = is_lower_better;
  return made;
}

/// A trial of 8 epochs of 10 steps with a metric at the end of each rung that it has come to.
Trial trial(State state, const std::vector<double>& metrics = {}) {
  Trial made;
  made.state = state;
  made.steps = 80;
  made.steps_per_epoch = 10;
  for (const double metric : metrics) made.results.push_back({.step = 0, .metric = metric});
  return made;
}

TEST(Asha, WithoutRungsTrialsRunInTheirOrder) {
  const std::vector<Trial> trials = {trial(State::kDone, {1}), trial(State::kRunning),
                                     trial(State::kWaiting), trial(State::kWaiting)};
  EXPECT_EQ(next_trial(plan({}), trials), 2);
  EXPECT_EQ(next_end(plan({}), trials[2]), 80);
}

TEST(Asha, StoppedTrialsContinueBeforeOthers) {
  const std::vector<Trial> trials = {trial(State::kWaiting), trial(State::kPaused, {1}),
                                     trial(State::kPaused, {2}), trial(State::kStopped)};
  EXPECT_EQ(next_trial(plan({1}), trials), 3);
}

TEST(Asha, TheBestOfARungIsPromotedBeforeNewOnesBegin) {
  const std::vector<Trial> trials = {trial(State::kPaused, {1}), trial(State::kPaused, {3}),
                                     trial(State::kWaiting)};
  EXPECT_EQ(next_trial(plan({1}), trials), 1);
  EXPECT_EQ(next_trial(plan({1}, /*is_lower_better=*/true), trials), 0);
}

TEST(Asha, OneAloneIsNotPromoted) {
  std::vector<Trial> trials = {trial(State::kPaused, {1}), trial(State::kWaiting)};
  EXPECT_EQ(next_trial(plan({1}), trials), 1);
  trials[1].state = State::kRunning;
  EXPECT_EQ(next_trial(plan({1}), trials), std::nullopt);
}

TEST(Asha, AtLastTheBestIsTrainedToItsEnd) {
  std::vector<Trial> trials = {trial(State::kPaused, {9}), trial(State::kPaused, {5, 6}),
                               trial(State::kPaused, {4, 7}), trial(State::kFailed)};
  Plan rungs = plan({1, 2});
  rungs.reduction = 5;  // four trials are too few
  EXPECT_EQ(next_trial(rungs, trials), 2);
  trials[2].state = State::kDone;
  EXPECT_EQ(next_trial(rungs, trials), std::nullopt);
}

TEST(Asha, ATrialIsPromotedOnce) {
  const std::vector<Trial> trials = {trial(State::kPaused, {1}), trial(State::kRunning, {3}),
                                     trial(State::kPaused, {2}), trial(State::kDone, {4, 5})};
  EXPECT_EQ(next_trial(plan({1}), trials), std::nullopt);  // the best two of four have continued
}

TEST(Asha, HigherRungsComeFirst) {
  const std::vector<Trial> trials = {trial(State::kPaused, {9, 1}), trial(State::kPaused, {8, 2}),
                                     trial(State::kPaused, {7}),    trial(State::kPaused, {6}),
                                     trial(State::kPaused, {5}),    trial(State::kPaused, {4})};
  EXPECT_EQ(next_trial(plan({1, 2}), trials), 1);
}

TEST(Asha, FailuresCountAsTheWorstOfTheirRung) {
  const std::vector<Trial> trials = {trial(State::kPaused, {1}), trial(State::kFailed)};
  EXPECT_EQ(next_trial(plan({1}), trials), 0);
}

TEST(Asha, OfEqualsTheFirstIsPromoted) {
  const std::vector<Trial> trials = {trial(State::kPaused, {1}), trial(State::kPaused, {1})};
  EXPECT_EQ(next_trial(plan({1}), trials), 0);
}

TEST(Asha, PartsEndWithTheirRungs) {
  const Plan rungs = plan({1, 2, 16});
  EXPECT_EQ(next_end(rungs, trial(State::kWaiting)), 10);
  EXPECT_EQ(next_end(rungs, trial(State::kPaused, {1})), 20);
  EXPECT_EQ(next_end(rungs, trial(State::kPaused, {1, 1})), 80);  // over before that rung
  EXPECT_EQ(next_end(rungs, trial(State::kPaused, {1, 1, 1})), 80);
}

}  // namespace
}  // namespace brim::sweep
