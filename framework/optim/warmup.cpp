#include "framework/optim/warmup.h"

#include <algorithm>
#include <cmath>

namespace brim::optim {

int64_t to_steps(double length, Unit unit, const RunLength& run) {
  const double steps =
      unit == Unit::kEpochs ? length * static_cast<double>(run.steps_per_epoch) : length;
  // Past any run's end; keeps the conversion defined.
  return std::llround(std::min(steps, 1e15));
}

WarmedUp::WarmedUp(const WarmupConfig& config, double learning_rate, const RunLength& run)
    : learning_rate_(learning_rate),
      warmup_start_(config.warmup_start),
      run_steps_(run.steps),
      warmup_steps_(to_steps(config.warmup, config.unit, run)) {
  if (warmup_steps_ > run.steps) {
    throw Error(Exit::kRecipe,
                "schedule.warmup is longer than the run: {} steps of warm-up, {} steps in all; "
                "shorten it or train for longer",
                warmup_steps_, run.steps);
  }
}

double WarmedUp::learning_rate(int64_t step) const {
  if (step >= warmup_steps_) {
    return learning_rate_ * factor(std::min(step - warmup_steps_, shape_steps()));
  }
  const double share = static_cast<double>(step) / static_cast<double>(warmup_steps_);
  return learning_rate_ * factor(0) * (warmup_start_ + (1.0 - warmup_start_) * share);
}

void WarmupConfig::fields(recipe::Fields& f) {
  f.choice("unit", unit, kUnitWords, "what the lengths in this section count");
  f.value("warmup", warmup, "length of the linear warm-up, in `unit`s; 0 for none",
          recipe::at_least(0));
  f.value("warmup_start", warmup_start,
          "factor on the learning rate in the first step of a warm-up", recipe::between(0, 1));
}

}  // namespace brim::optim
