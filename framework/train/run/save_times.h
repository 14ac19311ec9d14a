// When a run's state is to be saved, by [checkpoint]'s rules, and when it last was.
#pragma once

#include <cstdint>

#include "framework/base/units.h"
#include "framework/train/job.h"

namespace brim::train {

class SaveTimes {
 public:
  explicit SaveTimes(const CheckpointConfig& rules) : rules_(rules), at_s_(now_s()) {}

  /// By the clock, which each rank reads for itself.
  bool is_requested() const {
    return rules_.every_minutes > 0 && (now_s() - at_s_) / 60 >= rules_.every_minutes;
  }
  /// After `step`, where a rank has requested it or the rules name the step. Requests of several
  /// ranks arrive a step late: in the step after a save they are from before it.
  bool falls_due(int64_t step, bool is_requested) const {
    if (!rules_.enabled || step == step_) return false;
    return (is_requested && step != step_ + 1) ||
           (rules_.every_steps > 0 && step % rules_.every_steps == 0);
  }
  /// Nothing has changed since.
  bool is_saved(int64_t step, bool evaluation_due) const {
    return step == step_ && evaluation_due == evaluation_due_;
  }
  void saved(int64_t step, bool evaluation_due) {
    step_ = step;
    evaluation_due_ = evaluation_due;
    at_s_ = now_s();
  }

 private:
  const CheckpointConfig& rules_;
  int64_t step_ = -1;
  bool evaluation_due_ = false;
  double at_s_;
};

}  // namespace brim::train
