// When a run has warmed up: threads, caches, clocks and the loader's queue make the first steps
// slower or faster than what follows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace brim::experiment {

/// How far the medians of steps may lie apart in a steady run.
inline constexpr double kSteadyWithin = 0.05;

/// The first of the steps from which on a run is as fast as in its last `measured` steps: there the
/// median of five steps lies within kSteadyWithin of theirs. At most the number of steps before
/// those. Nullopt where it never was, or where the two halves of the measured steps themselves lie
/// further apart. 1 ≤ measured ≤ step_s.size().
std::optional<size_t> steady_from(std::span<const double> step_s, size_t measured);

}  // namespace brim::experiment
