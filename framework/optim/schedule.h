// The learning rate over a run: a function of the step, so that a resumed run needs no replay. Only
// `plateau` remembers something, the evaluations it has seen. The kinds are in schedules.h.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "framework/recipe/registry.h"

namespace brim::optim {

/// How long a run is. All in optimizer steps; both above 0.
struct RunLength {
  int64_t steps = 0;
  int64_t steps_per_epoch = 0;
};

/// What an evaluation found.
struct Evaluation {
  double loss = 0.0;
  double accuracy = 0.0;  // top-1, in [0, 1]
};

class Schedule {
 public:
  virtual ~Schedule() = default;

  /// The rate of step `step` ≥ 0; past the run's end, that of its end.
  virtual double learning_rate(int64_t step) const = 0;
  /// Call after each evaluation.
  virtual void observe(const Evaluation& evaluation);

  /// What a checkpoint must keep; {} where that is nothing.
  virtual nlohmann::json state() const;
  /// Throws Error(kCheckpoint) where this is not what state() gives.
  virtual void load(const nlohmann::json& state);
};

/// Base of every schedule's config struct.
class ScheduleConfig : public recipe::Config {
 public:
  /// `learning_rate` is the recipe's, the highest of the run. Throws Error(kRecipe) where the
  /// schedule doesn't fit into the run.
  virtual std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const = 0;
};

/// Registers constant, cosine, linear, step, one_cycle, plateau; call once at program start.
void register_schedules();

}  // namespace brim::optim
