// trainer doctor RUN --fix: the diagnosis' proposals, tried in short runs of the run's recipe.
#pragma once

#include "framework/cli/options.h"
#include "framework/doctor/fix.h"
#include "framework/experiment/run_data.h"

namespace brim::cli {

/// Adds --fix, --apply, --repeats and --steps.
void add_fix_options(cxxopts::Options& options);

/// Runs this program on the run's recipe with and without each proposal. With --apply the recipe
/// with what was kept is RUN/fixed.toml. Throws Error: kData where the folder holds no recipe,
/// kRecipe where a launcher started the run's ranks, and what training throws.
doctor::Fix fix_run(const experiment::RunData& run, const cxxopts::ParseResult& options);

}  // namespace brim::cli
