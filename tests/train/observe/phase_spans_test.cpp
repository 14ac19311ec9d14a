// Phases of steps from moments of a device that works behind the host.
#include "framework/train/observe/phase_spans.h"

#include <gmock/gmock.h>

#include <memory>
#include <numeric>

namespace brim::train {
namespace {

/// A device's clock that the test turns.
struct Device {
  double now_s = 0;
};

struct Scripted {
  Device* device;
  double passed_at_s;
  bool is_done() const { return device->now_s >= passed_at_s; }
  void wait() const { device->now_s = std::max(device->now_s, passed_at_s); }
  double seconds_to(const Scripted& later) const { return later.passed_at_s - passed_at_s; }
};

class PhaseSpansTest : public testing::Test {
 protected:
  std::shared_ptr<const Scripted> at(double seconds) {
    return std::make_shared<Scripted>(Scripted{&device_, seconds});
  }
  static double of(const std::array<double, kPhaseCount>& seconds, Phase phase) {
    return seconds[static_cast<size_t>(phase)];
  }
  static double sum(const std::array<double, kPhaseCount>& seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }
  Device device_;
  PhaseSpans<Scripted> spans_{at(0)};
};

TEST_F(PhaseSpansTest, AStepIsKnownOnceTheDeviceIsThroughWithIt) {
  spans_.begin(Phase::kForward, at(1));
  EXPECT_FALSE(spans_.pop(/*wait=*/true));  // no step has ended
  spans_.begin(Phase::kBackward, at(3));
  spans_.end_step(at(8));
  device_.now_s = 7;
  EXPECT_FALSE(spans_.pop(/*wait=*/false));
  device_.now_s = 8;
  const auto step = spans_.pop(/*wait=*/false);
  ASSERT_TRUE(step);
  EXPECT_EQ(of(*step, Phase::kOther), 1);
  EXPECT_EQ(of(*step, Phase::kForward), 2);
  EXPECT_EQ(of(*step, Phase::kBackward), 5);
  EXPECT_EQ(sum(*step), 8);
  EXPECT_FALSE(spans_.pop(/*wait=*/true));
}

TEST_F(PhaseSpansTest, APhaseGoesOnInTheNextStep) {
  spans_.begin(Phase::kOptimizer, at(1));
  spans_.end_step(at(2));
  spans_.begin(Phase::kDataWait, at(5));
  spans_.begin(Phase::kOptimizer, at(6));
  spans_.end_step(at(9));
  EXPECT_EQ(sum(*spans_.pop(/*wait=*/true)), 2);
  const auto second = spans_.pop(/*wait=*/true);
  EXPECT_EQ(of(*second, Phase::kOptimizer), 3 + 3);
  EXPECT_EQ(of(*second, Phase::kDataWait), 1);
  EXPECT_EQ(device_.now_s, 9);
}

TEST_F(PhaseSpansTest, AWaitThatTheDeviceDoesNotNoticeTakesNoTime) {
  // The host waits for data at the device's time 1 … 4, but the device is in backward until 6.
  spans_.begin(Phase::kBackward, at(1));
  spans_.begin(Phase::kDataWait, at(6));
  spans_.begin(Phase::kCopy, at(6));
  spans_.begin(Phase::kOptimizer, at(6));
  spans_.end_step(at(7));
  const auto step = spans_.pop(/*wait=*/true);
  EXPECT_EQ(of(*step, Phase::kDataWait), 0);
  EXPECT_EQ(of(*step, Phase::kBackward), 5);
}

}  // namespace
}  // namespace brim::train
