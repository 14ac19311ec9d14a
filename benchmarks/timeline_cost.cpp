// Nanoseconds that the timeline costs a step of twelve phases, as one with two micro-batches has.
#include <fmt/format.h>

#include "framework/base/timeline.h"
#include "framework/base/units.h"

int main() {
  using brim::Phase;
  constexpr int kSteps = 1'000'000;
  brim::Timeline timeline;
  double sum = 0;
  const double start_s = brim::now_s();
  for (int step = 0; step < kSteps; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      for (const Phase phase : {Phase::kDataWait, Phase::kCopy, Phase::kTransform,
                                Phase::kCommunication, Phase::kForward, Phase::kBackward}) {
        timeline.enter(phase);
      }
      timeline.move(Phase::kBackward, Phase::kCommunication, 0);
    }
    timeline.enter(Phase::kOptimizer);
    timeline.enter(Phase::kOther);
    for (const double seconds : timeline.take()) sum += seconds;
  }
  const double passed_s = brim::now_s() - start_s;
  fmt::print("{:.0f} ns a step; the phases hold {:.2f} % of the time\n", 1e9 * passed_s / kSteps,
             100 * sum / passed_s);
  return 0;
}
