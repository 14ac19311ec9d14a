// A throughput experiment: each variant of a recipe is run several times in a fresh process of its
// own, in turn with the others, so that what changes on the machine meanwhile falls on all alike.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/experiment/bench/measured_run.h"

namespace brim::experiment {

inline constexpr int64_t kMaxRepeats = 100;
inline constexpr int64_t kMaxSteps = 100000;
/// Processor time of other processes, in cores, from which on a run counts as disturbed.
inline constexpr double kBusyOthers = 0.1;

/// What is run for one variant: arguments of `trainer`, or a recipe as text.
struct VariantPlan {
  std::string name;                    // "batch.micro=8, precision.mode=bf16"
  std::vector<std::string> arguments;  // --recipe R --set …
  std::string recipe = {};             // TOML; where not empty, in place of --recipe
  std::optional<int64_t> steps = {};   // measured in each run; nullopt: about three seconds' worth
  int64_t warmup = 0;                  // steps before them, at least
};

struct BenchPlan {
  std::vector<VariantPlan> variants;
  int64_t repeats = 5;
  bool keeps_telemetry = false;  // as the recipes have it; else a line each step and no event file
};

struct BenchVariant {
  std::string name;
  std::string recipe;       // resolved, as TOML
  nlohmann::json job = {};  // run.json's "job": precision, micro-batch, parameters
  int64_t steps = 0;        // measured in each run
  int64_t warmup = 0;       // steps before them
  std::vector<MeasuredRun> runs = {};
};

struct BenchResult {
  std::string started;  // timestamp()
  double seconds = 0.0;
  int64_t repeats = 0;
  nlohmann::json environment;  // fingerprint(), "libraries", "device", "variables"
  std::vector<BenchVariant> variants = {};
};

/// Runs them all; a log line each. A short run of each variant comes first and is not counted: it
/// finds out how long a step takes and how many steps the warm-up has, fills the caches of files,
/// and settles what the recipe leaves open (batch.micro = "auto"). A run that other processes
/// disturbed is repeated, as long as no more runs are repeated than count. Temporary folders are
/// removed.
/// Throws the error of a run that fails, with its status, and Error(kStopped) after a stop.
BenchResult run_bench(const BenchPlan& plan);

}  // namespace brim::experiment
