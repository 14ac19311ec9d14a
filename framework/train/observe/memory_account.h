// Measures where a job's memory goes.
#pragma once

#include "framework/telemetry/memory_account.h"

namespace brim::device {
class Memory;
}

namespace brim::train {

struct CheckpointConfig;
struct TrainingComponents;

using telemetry::MemoryAccount;
using telemetry::ModuleBytes;

/// Of this rank, as of now; modules are left out. On the CPU the copy counts that a
/// checkpoint is written from while steps continue.
MemoryAccount memory_account(const CheckpointConfig& saves, const TrainingComponents& components,
                             const device::Memory& memory);

}  // namespace brim::train
