// What run.json says of the job beside its recipe: what the recipe left open and how it was
// decided.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/train/components.h"
#include "framework/train/job.h"

namespace brim::train {

/// run.json's "job": "precision" ("bf16"), "matrix_units" (whether the device multiplies formats
/// below fp32 in hardware), "channels_last", "convolutions" (whether the model has some),
/// "parameters", "micro_batch".
nlohmann::json job_record(const JobConfig& job, const TrainingComponents& components);

/// run.json's "forms": for each operation that has a fused form and LibTorch's, by its name, shapes
/// and threads, the seconds of both ("fused_s", "plain_s"), and which was "taken".
nlohmann::json forms_record();

}  // namespace brim::train
