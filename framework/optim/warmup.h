// The warm-up that the schedules share, and lengths in epochs or steps. For the schedules of this
// folder only.
#pragma once

#include <string_view>

#include "framework/optim/schedules.h"

namespace brim::optim {

/// A recipe's length as steps, rounded to the nearest.
int64_t to_steps(double length, Unit unit, const RunLength& run);

/// A schedule that is a warm-up, then a shape.
class WarmedUp : public Schedule {
 public:
  /// Throws Error(kRecipe) where the warm-up is longer than the run.
  WarmedUp(const WarmupConfig& config, double learning_rate, const RunLength& run);

  double learning_rate(int64_t step) const final;

 protected:
  /// The factor `t` steps after the warm-up, 0 ≤ t ≤ shape_steps().
  virtual double factor(int64_t t) const = 0;

  int64_t warmup_steps() const { return warmup_steps_; }
  int64_t shape_steps() const { return run_steps_ - warmup_steps_; }

 private:
  double learning_rate_;
  double warmup_start_;
  int64_t run_steps_;
  int64_t warmup_steps_;
};

}  // namespace brim::optim
