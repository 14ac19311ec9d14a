// A job's model: built, with its weights, and split between ranks where the job says so. Of a model
// that is split a rank gets memory for its own part alone, and for one tensor beyond.
#pragma once

#include <c10/core/Device.h>

#include "framework/train/components.h"
#include "framework/train/job.h"

namespace brim::train {

/// Which operations take their fused forms.
nn::Fused fused_forms(const JobConfig& job);

/// The recipe's model, freshly initialised. Throws Error(kRecipe) where its build() gives none, or one
/// without parameters, and what build() throws.
std::shared_ptr<nn::Model> new_model(const JobConfig& job, const nn::ModelShape& input);

/// Fills in the components' model and what is known of it; `device` is where it goes. Needs group,
/// precision and input. `stages`: null, or how the model is cut. Throws as build_components() does.
void build_model(const JobConfig& job, Weights weights, c10::Device device, const StagePlan* stages,
                 TrainingComponents& components);

}  // namespace brim::train
