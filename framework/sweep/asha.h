// Which trial runs next. Without rungs: the first that waits. With them, asynchronous successive
// halving (ASHA): Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020. A
// trial pauses at the end of each rung, and is promoted as soon as it is among the best
// 1/reduction of those that have come so far; a free device never waits for the rest of a rung.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

/// Its place among the trials; nullopt where nothing can run until another trial has ended. Trials
/// to be continued come first, then promotions from the highest rung down, then new ones; at last
/// the best one, where none has come to its end.
std::optional<size_t> next_trial(const Plan& plan, std::span<const Trial> trials);

/// The step at which the part of `trial` that runs next ends.
int64_t next_end(const Plan& plan, const Trial& trial);

}  // namespace brim::sweep
