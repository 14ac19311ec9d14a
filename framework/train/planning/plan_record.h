// What a run with distributed.strategy = "auto" keeps of its plan in run.json, for the run's later
// parts and for people: "plan", with "strategy" and "why", what was predicted, and "measured".
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/train/job.h"
#include "framework/train/run/run_folder.h"

namespace brim::train {

/// The "plan" of the run that is to be resumed in this folder, where it was made for so many ranks;
/// null where there is none, or none of use.
nlohmann::json read_plan(const RunFolder& folder, int64_t world);

/// Writes a plan's strategy into the job, and its micro-batch where it is smaller than the
/// recipe's.
void take_choice(const nlohmann::json& plan, JobConfig& job);

/// Adds to the plan of a run that has ended what its peak and steps were, and logs how far off the
/// prediction is. A run without a plan, or with another micro-batch than its, is left as it is.
void report_prediction(const RunFolder& folder, const JobConfig& job, int64_t world);

}  // namespace brim::train
