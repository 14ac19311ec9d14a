// Which keys a sweep's results depend on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

struct Importance {
  std::string key;
  double share = 0.0;  // of the differences between the trials' ranks, 0 to 1
};

/// How much of the differences between trials each key explains by itself, highest first: the
/// Kruskal-Wallis test's eta squared over the key's values, or over fifths of many numbers, less
/// what chance would explain. (Kruskal and Wallis, "Use of Ranks in One-Criterion Variance
/// Analysis", 1952; Tomczak and Tomczak, "The need to report effect size estimates revisited",
/// 2014.) Trials count with their first result, which they have reached in equal steps. Empty for
/// fewer than 10 of them.
std::vector<Importance> importance_of_keys(const Plan& plan, std::span<const Trial> trials);

}  // namespace brim::sweep
