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

/// Whether there is another pass, in which all ranks take part that wait for each other within it.
bool any_continues(const TrainingComponents& components, bool has_batch) {
  if (!components.sharded || components.sharded->is_apart()) return has_batch;
  if (components.group->any(stop_requested(), "the stop request")) return false;
  return components.group->any(has_batch, "the next pass of the evaluation");
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

/// Where memory runs out, throws LibTorch's error, in whatever mode the model then is.
at::Tensor sums_in_passes(TrainingComponents& components, const Inputs& all_inputs, int64_t batch,
                          int64_t pass) {
  const at::NoGradGuard no_grad;
  std::optional<optim::Ema::Swap> averaged;
  if (components.ema) averaged.emplace(*components.ema);
  components.model->eval();
  std::optional<distributed::FullySharded::Whole> whole;
  if (components.sharded) whole.emplace(*components.sharded);
  Timeline timeline;  // of its own: the step's is in its phase `evaluation`
  const auto inputs = all_inputs.evaluation(batch, pass, timeline);
  at::Tensor sums;
  try {
    for (;;) {
      const auto* batch = stop_requested() ? nullptr : inputs->next();
      if (!any_continues(components, batch != nullptr)) break;
      const amp::Autocast autocast(components.device.type(), components.precision);
      if (batch == nullptr) {  // others still have some: this rank's weights are needed
        components.model->forward(no_samples(components));
        continue;
      }
      const at::Tensor part = components.task->evaluation_sums(*components.model, batch->tensors);
      inputs->prefetch();
      sums = sums.defined() ? sums + part : part;
    }
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped) throw;
  }
  components.model->train();
  return sums;
}

/// nullopt where memory runs out, and `shortage` is what LibTorch said of it.
std::optional<at::Tensor> try_in_passes(TrainingComponents& components, const Inputs& inputs,
                                        int64_t batch, int64_t pass, std::string& shortage) {
  std::optional<at::Tensor> sums;
  const bool fits =
      device::fits([&] { sums = sums_in_passes(components, inputs, batch, pass); }, &shortage);
  if (!fits) components.model->train();
  return sums;
}

}  // namespace

at::Tensor evaluation_sums(TrainingComponents& components, const Inputs& inputs, int64_t micro) {
  const int64_t batch = inputs.evaluation_batch(micro);
  const int64_t world = components.group->world();
  // the largest of all ranks
  const int64_t share = (components.eval_data->size() + world - 1) / world;
  int64_t pass = std::clamp<int64_t>(share, 1, batch);
  // A rank whose memory runs out leaves others waiting for its weights: there is no second try.
  if (components.sharded && !components.sharded->is_apart()) {
    return sums_in_passes(components, inputs, batch, pass);
  }
  std::string shortage;
  for (;;) {
    if (const auto sums = try_in_passes(components, inputs, batch, pass, shortage)) return *sums;
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
  return try_in_passes(components, inputs, batch, batch, shortage);
}

}  // namespace brim::train
