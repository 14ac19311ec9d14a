// From the options of trainer sweep to a plan and its trials, each checked as a recipe.
#pragma once

#include <filesystem>
#include <vector>

#include "framework/cli/options.h"
#include "framework/sweep/config.h"
#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"
#include "framework/train/job.h"

namespace brim::cli {

struct PlannedSweep {
  sweep::Plan plan;
  sweep::SweepConfig config;
  train::JobConfig job;  // without the trials' settings
  std::vector<sweep::Trial> trials;
};

/// Throws Error: kRecipe for whatever is wrong with the recipe, the search space or a trial, kData
/// where the data can't be read.
PlannedSweep plan_sweep(const cxxopts::ParseResult& options);

/// More trials for a sweep: `count` that its search draws next, and one with these settings where
/// there are any. `trials` are those that it has, its recipe is `base`.
std::vector<sweep::Trial> plan_more(const sweep::Plan& plan, const std::filesystem::path& base,
                                    const std::vector<sweep::Trial>& trials, int64_t count,
                                    const std::vector<std::string>& settings, bool trusts_library);

/// Throws Error(kRecipe) where a trial's recipe, as the database in the sweep's `folder` holds it,
/// can't be run. A library that came with it needs --trust-library.
void check_trial(const sweep::Trial& trial, const std::filesystem::path& folder,
                 bool trusts_library);

}  // namespace brim::cli
