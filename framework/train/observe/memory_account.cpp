#include "framework/train/observe/memory_account.h"

#include "framework/device/memory/memory.h"
#include "framework/train/components.h"
#include "framework/train/job.h"

namespace brim::train {
namespace {

template <class Tensors>
int64_t bytes_of(const Tensors& named) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : named) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

MemoryAccount memory_account(const CheckpointConfig& saves, const TrainingComponents& components,
                             const device::Memory& memory) {
  const device::MemoryStats now = memory.stats();
  MemoryAccount account{.parameters_bytes = bytes_of(components.model.own_tensors()),
                        .optimizer_bytes = bytes_of(components.optimizer->state()),
                        .ema_bytes = components.ema ? bytes_of(components.ema->state()) : 0,
                        .peak_bytes = now.peak_bytes,
                        .outside_bytes = memory.outside_bytes(),
                        .limit_bytes = memory.limit_bytes()};
  for (const auto& [name, parameter] : components.model.own_parameters()) {
    if (parameter.requires_grad()) {
      account.gradients_bytes += static_cast<int64_t>(parameter.nbytes());
    }
  }
  const bool saves_between_steps =
      saves.enabled &&
      (saves.every_steps > 0 || saves.every_minutes > 0 || components.data.eval != nullptr);
  // Rank 0 writes the whole state, on the CPU from the steps' own memory; what is split over the
  // ranks goes to the disk without a copy. All ranks leave that room: one size of micro-batch is
  // that of all.
  if (saves_between_steps && components.model.device.is_cpu() &&
      components.model.split() == nullptr) {
    account.checkpoint_bytes = account.parameters_bytes + account.ema_bytes +
                               (components.optimizer->is_sharded() ? 0 : account.optimizer_bytes);
  }
  return account;
}

}  // namespace brim::train
