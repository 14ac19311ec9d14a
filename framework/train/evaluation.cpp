#include "framework/train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/timeline.h"
#include "framework/device/memory/memory.h"

namespace brim::train {
namespace {

enum class Next { kPass, kEnd, kSmallerPasses };

/// Ranks that need each other's weights take part in every pass, or all of them in none.
Next agree(const TrainingComponents& components, bool has_batch, bool has_fitted) {
  const at::Tensor flags = at::tensor({int{has_batch}, int{stop_requested()}, int{!has_fitted}});
  components.group->all_reduce(flags, distributed::Reduce::kMax, "the next pass of the evaluation");
  if (flags[2].item<int>() != 0) return Next::kSmallerPasses;
  return flags[0].item<int>() != 0 && flags[1].item<int>() == 0 ? Next::kPass : Next::kEnd;
}

/// A batch of the data's shape, without samples.
at::Tensor no_samples(const TrainingComponents& components) {
  const nn::ModelShape& shape = components.input;
  const auto on_device = at::device(components.device);
  if (shape.kind() == nn::InputKind::kImages) {
    return at::empty({0, shape.channels, shape.height, shape.width},
                     on_device.dtype(components.precision.parameters()));
  }
  std::vector<int64_t> sizes = {0, shape.length};
  if (shape.has_documents) sizes.insert(sizes.begin() + 1, 3);
  return at::empty(sizes, on_device.dtype(at::kLong));
}

/// Over a pass's samples, of which `samples` is told where it is not null.
at::Tensor sums_of(const TrainingComponents& components, const data::DevicePrefetcher::Input& batch,
                   SamplePredictions* samples) {
  const amp::Autocast autocast(components.device.type(), components.precision);
  if (samples == nullptr) {
    return components.task->evaluation_sums(*components.model, batch.tensors);
  }
  const Evaluated result = components.task->evaluate(*components.model, batch.tensors);
  if (result.guesses) samples->add(batch.first_position, *result.guesses);
  return result.sums;
}

void add(at::Tensor& sums, const at::Tensor& part) { sums = sums.defined() ? sums + part : part; }

at::Tensor sums_in_passes(const TrainingComponents& components, data::DevicePrefetcher& inputs,
                          SamplePredictions* samples) {
  at::Tensor sums;
  while (const auto* batch = stop_requested() ? nullptr : inputs.next()) {
    const at::Tensor part = sums_of(components, *batch, samples);
    inputs.prefetch();
    add(sums, part);
  }
  return sums;
}

/// The same, where every pass needs all ranks' weights. nullopt where memory runs out on any of
/// them, and `shortage` is what LibTorch said of it here.
std::optional<at::Tensor> sums_in_sharded_passes(const TrainingComponents& components,
                                                 data::DevicePrefetcher& inputs,
                                                 SamplePredictions* samples,
                                                 std::string& shortage) {
  distributed::FullySharded& sharded = *components.sharded;
  at::Tensor sums;
  const data::DevicePrefetcher::Input* batch = nullptr;
  const auto load = [&] {
    try {
      batch = stop_requested() ? nullptr : inputs.next();
    } catch (const Error& error) {
      if (error.status() != Exit::kStopped) throw;
      batch = nullptr;
    }
  };
  bool fits = device::fits(load, &shortage);
  for (;;) {
    const Next next = agree(components, batch != nullptr, fits);
    if (next == Next::kSmallerPasses) return std::nullopt;
    if (next == Next::kEnd) return sums;
    sharded.before_forward(false);
    fits = device::fits(
        [&] {
          if (batch == nullptr) {  // others have some left
            const amp::Autocast autocast(components.device.type(), components.precision);
            components.model->forward(no_samples(components));
          } else {
            add(sums, sums_of(components, *batch, samples));
          }
        },
        &shortage);
    if (!fits) sharded.give_up_forward();
    fits = fits && device::fits(load, &shortage);
  }
}

/// nullopt where memory runs out, and `shortage` is what LibTorch said of it.
std::optional<at::Tensor> try_in_passes(TrainingComponents& components, const Inputs& all_inputs,
                                        int64_t batch, int64_t pass, SamplePredictions* samples,
                                        std::string& shortage) {
  const at::NoGradGuard no_grad;
  if (samples != nullptr) samples->clear();
  std::optional<optim::Ema::Swap> averaged;
  if (components.ema) averaged.emplace(*components.ema);
  components.model->eval();
  Timeline timeline;  // of its own: the step's is in its phase `evaluation`
  std::optional<at::Tensor> sums;
  if (components.sharded && !components.sharded->is_apart()) {
    const auto inputs = all_inputs.evaluation(batch, pass, timeline);
    const distributed::FullySharded::Evaluation evaluation(*components.sharded);
    sums = sums_in_sharded_passes(components, *inputs, samples, shortage);
  } else {
    std::optional<distributed::FullySharded::Evaluation> evaluation;
    device::fits(
        [&] {
          const auto inputs = all_inputs.evaluation(batch, pass, timeline);
          if (components.sharded) evaluation.emplace(*components.sharded);
          try {
            sums = sums_in_passes(components, *inputs, samples);
          } catch (const Error& error) {
            if (error.status() != Exit::kStopped) throw;
            sums = at::Tensor();
          }
        },
        &shortage);
  }
  components.model->train();
  return sums;
}

}  // namespace

at::Tensor evaluation_sums(TrainingComponents& components, const Inputs& inputs, int64_t micro,
                           SamplePredictions* samples) {
  const int64_t batch = inputs.evaluation_batch(micro);
  const int64_t world = components.group->world();
  // the largest of all ranks
  const int64_t share = (components.eval_data->size() + world - 1) / world;
  int64_t pass = std::clamp<int64_t>(share, 1, batch);
  std::string shortage;
  for (;;) {
    const auto sums = try_in_passes(components, inputs, batch, pass, samples, shortage);
    if (sums) return *sums;
    if (pass == 1) {
      throw Error(Exit::kResource,
                  "out of memory in the evaluation with batch size 1: {}. Choose a smaller "
                  "model or smaller samples, or give the job more memory (device.memory_gib)",
                  shortage);
    }
    log::warning("out of memory in the evaluation with batch size {}; retrying with {} ({})", pass,
                 (pass + 1) / 2, shortage);
    pass = (pass + 1) / 2;
  }
}

std::optional<at::Tensor> try_evaluation_sums(TrainingComponents& components, const Inputs& inputs,
                                              int64_t micro) {
  std::string shortage;
  const int64_t batch = inputs.evaluation_batch(micro);
  return try_in_passes(components, inputs, batch, batch, /*samples=*/nullptr, shortage);
}

}  // namespace brim::train
