// What run.json says of the job beside its recipe: what the recipe left open and how it was
// decided.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/train/rank_model.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

/// run.json's "job": "precision" ("bf16"), "matrix_units" (whether the device multiplies bf16, or
/// fp16 on a GPU, faster than fp32), "channels_last", "convolutions" (whether the model has some),
/// "parameters", "micro_batch".
nlohmann::json job_record(const RankModel& model, int64_t micro_batch);

/// run.json's "forms": for each operation that has a fused form and LibTorch's, by its name, shapes
/// and threads, the seconds of both ("fused_s", "plain_s"), and which was "taken".
nlohmann::json forms_record();

/// run.json's "classes": for each class, in their order, its "name", the evaluation's "samples",
/// those "correct" and, where that is counted, "taken_for": samples by predicted class. `names` by
/// label.
nlohmann::json classes_record(const std::vector<ClassResult>& results,
                              const std::vector<std::string>& names);

}  // namespace brim::train
