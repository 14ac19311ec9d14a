// When a run's steps ended, so that its charts can be read by wall time.
#pragma once

#include <vector>

#include "framework/experiment/run_data.h"

namespace brim::experiment {

/// Seconds of the run's age: time between two of its processes does not count.
class Clock {
 public:
  explicit Clock(const RunData& run);

  /// False where the run has not recorded its age.
  bool is_known() const { return !steps_.empty(); }
  /// Of a step that may lie between two recorded ones, or somewhat beyond the last.
  double at(double step) const;

 private:
  std::vector<double> steps_;  // rising
  std::vector<double> ages_s_;
};

}  // namespace brim::experiment
