#include "framework/train/observe/memory_account.h"

#include "framework/nn/model.h"

namespace brim::train {
namespace {

template <class Tensors>
int64_t bytes_of(const Tensors& named) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : named) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

MemoryAccount memory_account(const JobConfig& job, const Parts& parts,
                             const device::Memory& memory) {
  const device::MemoryStats now = memory.stats();
  MemoryAccount account{.parameters_bytes = bytes_of(nn::named_tensors(*parts.model)),
                        .optimizer_bytes = bytes_of(parts.optimizer->state()),
                        .ema_bytes = parts.ema ? bytes_of(parts.ema->state()) : 0,
                        .peak_bytes = now.peak_bytes,
                        .outside_bytes = memory.outside_bytes(),
                        .limit_bytes = memory.limit_bytes()};
  for (const at::Tensor& parameter : parts.model->parameters()) {
    if (parameter.requires_grad()) {
      account.gradients_bytes += static_cast<int64_t>(parameter.nbytes());
    }
  }
  const CheckpointConfig& saves = job.checkpoint;
  const bool saves_between_steps =
      saves.enabled &&
      (saves.every_steps > 0 || saves.every_minutes > 0 || parts.eval_data != nullptr);
  // Rank 0 writes the whole state, on the CPU from the steps' own memory. All ranks leave that
  // room: one size of micro-batch is everybody's.
  if (saves_between_steps && parts.device.is_cpu()) {
    account.checkpoint_bytes =
        account.parameters_bytes + account.optimizer_bytes + account.ema_bytes;
  }
  return account;
}

}  // namespace brim::train
