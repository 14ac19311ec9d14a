// One pass over the evaluation data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "framework/train/components.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/sample_predictions.h"

namespace brim::train {

/// The task's sums over this rank's part of the evaluation data, with the averaged weights where
/// the job keeps an average; `micro` samples a pass where the recipe gives no size. Where memory
/// runs out, the data are gone over again in passes half as large. Where a stop is asked for, of a
/// part of the data, or undefined. The model is in training mode afterwards. `samples`, where given,
/// is told how each sample came out. Throws Error(kResource) where a single sample is too much.
at::Tensor evaluation_sums(TrainingComponents& components, const Inputs& inputs, int64_t micro,
                           SamplePredictions* samples = nullptr);

/// The same, but nullopt where memory runs out.
std::optional<at::Tensor> try_evaluation_sums(TrainingComponents& components, const Inputs& inputs,
                                              int64_t micro);

/// What the task makes of those of all ranks, on the CPU. Throws Error(kRecipe) unless there are
/// metrics, each has a printable name of its own, and best_by() is among them.
Metrics metrics_of(const Task& task, const at::Tensor& sums);

}  // namespace brim::train
