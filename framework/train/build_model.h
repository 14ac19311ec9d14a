// A job's model: built, with its weights, and split between ranks where the job says so. Of a model
// that is split a rank gets memory for its own part alone, and for one tensor beyond.
#pragma once

#include <c10/core/Device.h>

#include "framework/train/job.h"
#include "framework/train/rank_model.h"

namespace brim::train {

struct StagePlan;

/// Where a model's weights come from.
enum class Weights {
  kOfRecipe,      // model.pretrained, or drawn from the seed
  kOfCheckpoint,  // resume() or load_model() follows; model.pretrained is not read
  kNone,  // shapes alone (nn/without_storage.h); model.pretrained is only checked against them
};

/// Which operations take their fused forms.
nn::Fused fused_forms(const JobConfig& job);

/// The recipe's model, freshly initialised. Throws Error(kRecipe) where its build() gives none, or
/// one without parameters, and what build() throws.
std::shared_ptr<nn::Model> new_model(const ModelSection& section, const nn::ModelShape& input);

/// Fills in the module and what is known of it; `device` is where it goes. Needs group,
/// precision and input. `stages`: null, or how the model is cut. Throws as build_components() does.
void build_model(const JobConfig& job, Weights weights, c10::Device device, const StagePlan* stages,
                 RankModel& model);

}  // namespace brim::train
