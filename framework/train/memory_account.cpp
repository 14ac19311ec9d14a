#include "framework/train/memory_account.h"

#include <algorithm>

#include "framework/base/units.h"
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

int64_t MemoryAccount::activations_bytes() const {
  const int64_t known =
      parameters_bytes + gradients_bytes + optimizer_bytes + ema_bytes + checkpoint_bytes;
  return std::max<int64_t>(0, peak_bytes - known);
}

std::string MemoryAccount::text() const {
  std::string text =
      fmt::format("parameters {}, gradients {}, optimizer {}", format_bytes(parameters_bytes),
                  format_bytes(gradients_bytes), format_bytes(optimizer_bytes));
  if (ema_bytes > 0) text += fmt::format(", moving average {}", format_bytes(ema_bytes));
  if (checkpoint_bytes > 0) {
    text += fmt::format(", a checkpoint's copy {}", format_bytes(checkpoint_bytes));
  }
  text += fmt::format(", activations and workspace {}", format_bytes(activations_bytes()));
  if (outside_bytes > 0) text += fmt::format(", beside tensors {}", format_bytes(outside_bytes));
  return text + fmt::format("; the job may take {}", format_bytes(limit_bytes));
}

MemoryAccount memory_account(const Parts& parts, const device::Memory& memory) {
  const device::MemoryStats now = memory.stats();
  MemoryAccount account{.parameters_bytes = bytes_of(nn::named_tensors(*parts.model)),
                        .optimizer_bytes = bytes_of(parts.optimizer->state()),
                        .ema_bytes = parts.ema ? bytes_of(parts.ema->state()) : 0,
                        .peak_bytes = now.peak_bytes,
                        .cap_bytes = now.cap_bytes,
                        .outside_bytes = memory.outside_bytes(),
                        .limit_bytes = memory.limit_bytes()};
  for (const at::Tensor& parameter : parts.model->parameters()) {
    if (parameter.requires_grad()) {
      account.gradients_bytes += static_cast<int64_t>(parameter.nbytes());
    }
  }
  return account;
}

}  // namespace brim::train
