#include "framework/device/shared_cores.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace brim::device {
namespace {

/// A process as WaitChoice sees it, ten times a second.
struct Process {
  double spinning_steps_per_s = 30;
  double brief_steps_per_s = 30;
  double brief_delay = 1;  // at most, while it spins briefly
  WaitChoice choice = {};
  double now_s = 1000;
  double steps = 0;
  bool is_brief = false;

  /// How many of the periods it spun briefly in.
  int periods(int count, double delay) {
    int brief_periods = 0;
    for (int period = 0; period < count; ++period) {
      now_s += 0.1;
      steps += 0.1 * (is_brief ? brief_steps_per_s : spinning_steps_per_s);
      is_brief = choice.spins_briefly(now_s, is_brief ? std::min(delay, brief_delay) : delay,
                                      static_cast<int64_t>(steps));
      if (is_brief) ++brief_periods;
    }
    return brief_periods;
  }
};

TEST(WaitChoice, SpinsOnCoresOfItsOwn) {
  Process process{.brief_steps_per_s = 100};
  EXPECT_EQ(process.periods(1000, 0.01), 0);
}

TEST(WaitChoice, SpinsBrieflySoonBesideOthersAndForASecondAfterThem) {
  Process process{.spinning_steps_per_s = 0, .brief_steps_per_s = 0};
  EXPECT_EQ(process.periods(2, 0.5), 0);  // as a run's start has
  EXPECT_EQ(process.periods(5, 0.1), 0);
  EXPECT_EQ(process.periods(5, 0.5), 3);
  EXPECT_EQ(process.periods(20, 0.01), 9);
}

TEST(WaitChoice, BesideOthersHardlySpins) {
  Process process{.spinning_steps_per_s = 3};
  EXPECT_GT(process.periods(10'000, 0.8), 9700);
}

TEST(WaitChoice, SpinsASecondAfterOthersHaveLeft) {
  for (const double spinning_steps_per_s : {3.0, 20.0}) {
    Process process{.spinning_steps_per_s = spinning_steps_per_s};
    process.periods(150, 0.5);
    EXPECT_TRUE(process.is_brief);
    EXPECT_EQ(process.periods(20, 0.01), 9);
  }
}

TEST(WaitChoice, BesideALoaderTakesWhatMakesStepsFaster) {
  Process process{.brief_steps_per_s = 36, .brief_delay = 0.01};
  process.periods(150, 0.1);
  EXPECT_TRUE(process.is_brief);
  EXPECT_EQ(process.periods(1000, 0.1), 1000);  // hardly a delay in this way, which is no news
  process.periods(300, 0.01);
  EXPECT_FALSE(process.is_brief);
}

TEST(WaitChoice, BesideALoaderSpinsWhereThatIsAsFast) {
  for (const double delay : {0.1, 0.4}) {
    Process process{.brief_steps_per_s = 30.5};
    process.periods(150, delay);
    EXPECT_EQ(process.periods(1000, delay), 0);
    process.brief_steps_per_s = 60;
    process.periods(500, delay);
    EXPECT_TRUE(process.is_brief);
  }
}

TEST(WaitChoice, DelaysThatComeWithBriefSpinsAreNoReasonToStayWithThem) {
  Process process{.spinning_steps_per_s = 350, .brief_steps_per_s = 250};
  process.periods(4, 0.5);
  EXPECT_TRUE(process.is_brief);
  for (int i = 0; i < 100; ++i) process.periods(1, i % 3 == 0 ? 0.02 : 0.08);
  EXPECT_FALSE(process.is_brief);
}

TEST(WaitChoice, OthersEndWhatWasDecided) {
  Process process;
  process.periods(150, 0.3);
  EXPECT_FALSE(process.is_brief);
  process.spinning_steps_per_s = 3;
  EXPECT_GT(process.periods(100, 0.9), 80);
}

TEST(WaitChoice, WaitsForStepsThatTakeSeconds) {
  Process process{.spinning_steps_per_s = 0.25, .brief_steps_per_s = 0.35};
  process.periods(1300, 0.1);
  EXPECT_TRUE(process.is_brief);
}

}  // namespace
}  // namespace brim::device
