// What `trainer bench` and `trainer compare` share: the options of measured runs, and recipes as
// variants of an experiment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/cli/options.h"
#include "framework/experiment/bench/bench.h"
#include "framework/experiment/bench/sweep.h"

namespace brim::cli {

/// --config, --set, --devices, --repeats, --steps, --data.
void add_bench_options(cxxopts::Options& options);

int64_t repeats_option(const cxxopts::ParseResult& options);
std::optional<int64_t> steps_option(const cxxopts::ParseResult& options);

/// The recipe with the options' layers, once for each combination of the sweeps; named by their
/// values, or by `name` without any. Each is read, so that a wrong key is found before anything
/// runs. Throws Error(kRecipe), and Error(kData) where synthetic data can't take the place of the
/// recipe's.
std::vector<experiment::VariantPlan> plan_variants(const std::string& recipe,
                                                   const std::string& name,
                                                   const std::vector<experiment::Sweep>& sweeps,
                                                   const cxxopts::ParseResult& options);

/// Throws Error(kRecipe) under a launcher: a bench starts its runs itself.
void require_no_launcher(const std::string& command);

}  // namespace brim::cli
