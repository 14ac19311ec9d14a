// Phases add up to the time that passed.
#include "framework/base/timeline.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/units.h"

namespace brim {
namespace {

using std::chrono::milliseconds;

double sum(const std::array<double, kPhaseCount>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}
double of(const std::array<double, kPhaseCount>& seconds, Phase phase) {
  return seconds[static_cast<size_t>(phase)];
}

TEST(Timeline, PhasesSumToTheTimeBetweenTwoTakes) {
  const double outer_start = now_s();
  Timeline timeline;
  const double inner_start = now_s();
  timeline.enter(Phase::kForward);
  std::this_thread::sleep_for(milliseconds(5));
  timeline.enter(Phase::kBackward);
  std::this_thread::sleep_for(milliseconds(3));
  timeline.enter(Phase::kForward);
  std::this_thread::sleep_for(milliseconds(2));
  const double inner_end = now_s();
  const auto seconds = timeline.take();
  const double outer_end = now_s();
  EXPECT_GE(sum(seconds), inner_end - inner_start - 1e-9);
  EXPECT_LE(sum(seconds), outer_end - outer_start + 1e-9);
  EXPECT_GE(of(seconds, Phase::kForward), 0.007);
  EXPECT_GE(of(seconds, Phase::kBackward), 0.003);
  EXPECT_EQ(of(seconds, Phase::kCopy), 0.0);
}

TEST(Timeline, TakeStartsANewAccountInTheSamePhase) {
  Timeline timeline;
  timeline.enter(Phase::kCheckpoint);
  std::this_thread::sleep_for(milliseconds(2));
  timeline.take();
  std::this_thread::sleep_for(milliseconds(1));
  const auto seconds = timeline.take();
  EXPECT_GE(of(seconds, Phase::kCheckpoint), 0.001);
  EXPECT_EQ(sum(seconds), of(seconds, Phase::kCheckpoint));
}

TEST(Timeline, TimeThatNoPhaseClaimsIsOther) {
  Timeline timeline;
  std::this_thread::sleep_for(milliseconds(1));
  const auto seconds = timeline.take();
  EXPECT_GE(of(seconds, Phase::kOther), 0.001);
  EXPECT_EQ(sum(seconds), of(seconds, Phase::kOther));
}

TEST(Timeline, AnObserverIsToldOfEachPhaseThatBeginsOnce) {
  struct Listener : PhaseObserver {
    std::vector<Phase> heard;
    void begins(Phase phase) override { heard.push_back(phase); }
  } listener;
  Timeline timeline;
  timeline.enter(Phase::kCopy);
  timeline.observe(listener);
  timeline.enter(Phase::kCopy);  // continues
  timeline.enter(Phase::kForward);
  timeline.move(Phase::kForward, Phase::kCommunication, 0);
  timeline.take();
  timeline.enter(Phase::kBackward);
  timeline.forget(listener);
  timeline.enter(Phase::kOther);
  EXPECT_EQ(listener.heard, (std::vector{Phase::kForward, Phase::kBackward}));
}

TEST(Timeline, EachPhaseHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    names.insert(phase_name(static_cast<Phase>(phase)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kPhaseCount));
  EXPECT_EQ(phase_name(Phase::kDataWait), "data_wait");
  EXPECT_EQ(phase_name(Phase::kOther), "other");
}

}  // namespace
}  // namespace brim
