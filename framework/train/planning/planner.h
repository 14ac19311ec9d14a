// How a job's step is best taken on its ranks: which strategy, micro-batch and recompute fit, and
// how long each takes. Memory is counted from shapes (simulated_rank.h), time is measured by probes
// or taken from data sheets. For `trainer plan` and distributed.strategy = "auto".
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/plan/assumption.h"
#include "framework/plan/ranking.h"
#include "framework/train/job.h"

namespace brim::train {

struct Plan {
  std::vector<plan::Candidate> ranked = {};  // rank 0's; the first fits
  std::string basis = {};                    // what times are from
  bool has_statistics = false;               // the micro-batch is part of what is learned
  double seconds = 0;                        // that the plan took
};

/// Every strategy, power of two and recompute, timed by up to three probes. Every rank calls it.
/// `job` is changed meanwhile. Throws Error(kResource) with the cheapest change where nothing fits.
Plan make_plan(JobConfig& job, c10::Device device, const std::shared_ptr<distributed::Group>& group,
               device::Memory& memory);

/// The same for devices that are not there.
Plan make_assumed_plan(JobConfig& job, const plan::Assumption& assumed,
                       const device::Memory& memory);

/// For strategy = "auto": chooses for the recipe's batch and recompute, without probes, in some
/// seconds, and writes the strategy into the job of every rank; a smaller micro-batch too where the
/// recipe's fits under none. Returns run.json's "plan", the candidate and "why", on rank 0. Every
/// rank calls it. Throws as make_plan() does.
nlohmann::json choose_strategy(JobConfig& job, c10::Device device,
                               const std::shared_ptr<distributed::Group>& group,
                               device::Memory& memory);

/// Writes a strategy into the job.
void take(const plan::Strategy& strategy, JobConfig& job);

/// For `trainer plan --json`: "basis", "why", "candidates", …
nlohmann::json to_json(const Plan& plan);

}  // namespace brim::train
