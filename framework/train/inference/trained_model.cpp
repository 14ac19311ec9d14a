#include "framework/train/inference/trained_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/device/choice.h"
#include "framework/distributed/group.h"
#include "framework/optim/sgd.h"
#include "framework/text/tokenizer_files.h"
#include "framework/train/input_shape.h"

namespace brim::train {
namespace {

constexpr int64_t kPassSamples = 64;  // at most, where the recipe would have them tuned

/// What a model that is used needs of its job: no order of samples, no schedule, and an optimizer
/// without state.
JobConfig for_use(JobConfig job) {
  if (!job.batch.global) job.batch.global = job.optimizer.base_batch;
  if (!job.batch.micro) job.batch.micro = std::min<int64_t>(*job.batch.global, kPassSamples);
  job.data.sampler.sampler.select("sequential");
  job.optimizer.optimizer.select_as<optim::SgdConfig>("sgd").momentum = 0;
  job.schedule.schedule.select("constant");
  job.eval.enabled = false;
  return job;
}

std::optional<nn::ModelShape> shape_in(const std::optional<SavedRun>& saved) {
  const auto input = saved ? input_of(saved->checkpoint) : std::nullopt;
  return input ? std::optional(input->shape) : std::nullopt;
}

}  // namespace

LoadedModel::LoadedModel(JobConfig of, const std::optional<SavedRun>& saved,
                         const std::optional<nn::ModelShape>& input)
    : job(for_use(std::move(of))), device(device::choose_device(job.device)) {
  recipe::Slot<data::SourceConfig> source;
  if (input) {
    select_synthetic(*input, *job.batch.global, 0, source);
    std::swap(source, job.data.source);
  }
  memory = device::memory_of(device, job.device);
  components = build_components(job, device, distributed::Group::alone(),
                                saved ? Weights::kOfCheckpoint : Weights::kOfRecipe);
  if (input) std::swap(source, job.data.source);
  if (saved) state = load_model(saved->checkpoint, components.model, components.ema.get());
  classes = state.classes.empty() ? class_names(*components.data.train) : state.classes;
}

TrainedModel::TrainedModel(JobConfig of, const std::optional<SavedRun>& saved)
    : LoadedModel(std::move(of), saved, shape_in(saved)) {
  tokenizer = job.data.source->tokenizer_folder();
  if (saved && text::has_tokenizer(saved->run.tokenizer())) tokenizer = saved->run.tokenizer();
  if (components.ema) averaged.emplace(*components.ema);
  components.model.module->eval();
}

void require_finite(const at::Tensor& logits) {
  if (at::isfinite(logits.amax(1)).all().item<bool>()) return;
  throw Error(Exit::kNumeric,
              "expected finite logits, found NaN or infinity; use another checkpoint, or "
              "precision.mode = \"fp32\" where the recipe has another");
}

}  // namespace brim::train
