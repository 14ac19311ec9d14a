#include "framework/train/evaluation.h"

#include <ATen/ATen.h>

#include <optional>

#include "framework/amp/autocast.h"
#include "framework/base/stop.h"
#include "framework/base/timeline.h"

namespace brim::train {

at::Tensor evaluation_sums(Parts& parts, const Inputs& all_inputs, int64_t micro) {
  const at::NoGradGuard no_grad;
  std::optional<optim::Ema::Swap> averaged;
  if (parts.ema) averaged.emplace(*parts.ema);
  parts.model->eval();
  Timeline timeline;  // of its own: the step's is in its phase `evaluation`
  const auto inputs = all_inputs.evaluation(micro, timeline);
  at::Tensor sums;
  while (const auto* batch = stop_requested() ? nullptr : inputs->next()) {
    const amp::Autocast autocast(parts.device.type(), parts.precision);
    const at::Tensor part = parts.task->evaluation_sums(*parts.model, batch->tensors);
    inputs->prefetch();
    sums = sums.defined() ? sums + part : part;
  }
  parts.model->train();
  return sums;
}

}  // namespace brim::train
