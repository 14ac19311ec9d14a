#include "framework/base/timeline.h"

#include <utility>

#include "framework/base/units.h"

namespace brim {

std::string_view phase_name(Phase phase) {
  static constexpr std::array<std::string_view, kPhaseCount> kNames = {
      "data_wait",     "copy",      "transform",  "forward",    "backward",
      "communication", "optimizer", "checkpoint", "evaluation", "other"};
  return kNames[static_cast<size_t>(phase)];
}

Timeline::Timeline() : since_s_(now_s()) {}

void Timeline::enter(Phase phase) {
  const double now = now_s();
  seconds_[static_cast<size_t>(phase_)] += now - since_s_;
  since_s_ = now;
  if (phase != phase_) {
    for (PhaseObserver* observer : observers_) observer->begins(phase);
  }
  phase_ = phase;
}

void Timeline::move(Phase from, Phase to, double seconds) {
  enter(phase_);
  seconds_[static_cast<size_t>(from)] -= seconds;
  seconds_[static_cast<size_t>(to)] += seconds;
}

std::array<double, kPhaseCount> Timeline::take() {
  enter(phase_);
  return std::exchange(seconds_, {});
}

}  // namespace brim
