#include "framework/train/inference/trained_model.h"

#include <utility>

#include "framework/device/choice.h"
#include "framework/distributed/group.h"
#include "framework/train/input_shape.h"
#include "framework/train/run/state.h"

namespace brim::train {

TrainedModel::TrainedModel(JobConfig of, const std::optional<SavedRun>& saved)
    : job(std::move(of)), device(device::choose_device(job.device)) {
  if (!job.batch.global) job.batch.global = job.optimizer.base_batch;
  if (!job.batch.micro) job.batch.micro = *job.batch.global;
  job.eval.enabled = false;
  const auto input = saved ? input_of(saved->checkpoint) : std::nullopt;
  recipe::Slot<data::SourceConfig> source;
  if (input) {
    select_synthetic(*input, *job.batch.global, 0, source);
    std::swap(source, job.data.source);
  }
  memory = device::memory_of(device, job.device);
  components = build_components(job, device, distributed::Group::alone(),
                                saved ? Weights::kOfCheckpoint : Weights::kOfRecipe);
  if (input) std::swap(source, job.data.source);
  if (saved) classes = load_model(saved->checkpoint, components).classes;
  if (classes.empty()) classes = class_names(components);
  if (components.ema) averaged.emplace(*components.ema);
  components.model->eval();
}

}  // namespace brim::train
