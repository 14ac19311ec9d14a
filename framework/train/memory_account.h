// Where a job's memory goes: for people who run out of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/device/memory.h"
#include "framework/train/parts.h"

namespace brim::train {

struct MemoryAccount {
  int64_t parameters_bytes = 0;  // buffers included
  int64_t gradients_bytes = 0;   // once a backward pass has made them
  int64_t optimizer_bytes = 0;
  int64_t ema_bytes = 0;
  int64_t checkpoint_bytes = 0;  // the copy that is being written, where it lies in this memory
  int64_t peak_bytes = 0;        // most that tensors held, all of the above included
  int64_t cap_bytes = 0;
  int64_t outside_bytes = 0;  // beside tensors, of the limit
  int64_t limit_bytes = 0;    // what the job may take

  /// The rest of the peak: activations, and what operators need while they run.
  int64_t activations_bytes() const;
  /// "parameters 90 MiB, gradients 90 MiB, …".
  std::string text() const;
};

MemoryAccount memory_account(const Parts& parts, const device::Memory& memory);

}  // namespace brim::train
