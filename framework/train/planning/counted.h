// The ways to take a job's step on some ranks, with the memory that each takes, counted without any
// (simulated_rank.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/distributed/ranks.h"
#include "framework/plan/ranking.h"
#include "framework/train/job.h"
#include "framework/train/planning/step_work.h"
#include "framework/train/tuning/probe_job.h"

namespace brim::train {

/// The ranks that a plan is for, and what a job is to them.
struct PlannedRanks {
  distributed::Ranks ranks = {};  // of which this is rank 0
  bool is_cpu = true;
  DataShape shape = {};
  amp::PrecisionMode precision = amp::PrecisionMode::kAuto;  // as their devices resolve it
  const device::Memory* memory = nullptr;                    // of this process
  int64_t cap_bytes = 0;  // of tensors and, on the CPU, of batches being loaded

  /// The largest of so many parts of a global batch; where that is tuned, as much as is tried.
  int64_t share(const JobConfig& job, int64_t parts) const;
  int64_t share(const JobConfig& job) const { return share(job, ranks.world); }
};

struct CountOptions {
  bool is_told = false;  // a line before each strategy: large models take a while
  std::vector<int64_t> micros = {};
  std::vector<std::vector<std::string>> recomputes = {};
  std::vector<plan::Strategy> strategies = {};
};

/// Strategies that a job may have on so many ranks: sharded ones need an optimizer that takes
/// elements one by one, stages a batch that is given and a model that is a sequence of parts.
std::vector<plan::Strategy> strategies_of(const JobConfig& job, int64_t world);

/// Each strategy, powers of two and the rank's whole share, without recompute and with all blocks.
CountOptions all_ways(const JobConfig& job, const PlannedRanks& ranks);

struct Counted {
  std::vector<plan::Candidate> candidates = {};  // without times
  plan::ModelBytes model = {};
  ModelCosts costs = {};
  std::string format = {};  // that products are computed in: "bf16"
  int64_t unit = 1;         // the smallest micro-batch that can be taken
  bool has_blocks = false;
  bool has_statistics = false;
};

/// `job` is changed meanwhile. A model without blocks has no way with recompute beside one
/// without. Throws what building the model throws.
Counted count(JobConfig& job, const PlannedRanks& ranks, const CountOptions& options);

}  // namespace brim::train
