// Which settings the trials of a sweep get: all of a grid, or points drawn from the search space.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/sweep/space.h"

namespace brim::sweep {

inline constexpr int64_t kMaxTrials = 10000;

/// The next point of a sequence, a coordinate in [0, 1) for each key.
using Points = std::function<std::vector<double>()>;

/// Independent and uniform: a function of the seed and the point's number.
Points random_points(int64_t seed, size_t keys);

using Settings = std::vector<std::string>;

/// The first `count` points' settings that are not `taken`; none comes twice. A longer draw begins
/// with a shorter one. Throws Error(kRecipe) where the space has not as many.
std::vector<Settings> draw(std::span<const Parameter> space, const Points& points, int64_t count,
                           const std::set<Settings>& taken);

/// Every combination of the lists. Throws Error(kRecipe) for a range, and for more than
/// kMaxTrials.
std::vector<Settings> grid(std::span<const Parameter> space);

/// In a random order: trials that get better from one to the next would all be promoted by ASHA.
std::vector<Settings> shuffled(const std::vector<Settings>& all, int64_t seed);

}  // namespace brim::sweep
