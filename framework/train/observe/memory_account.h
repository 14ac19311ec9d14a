// Measures where a job's memory goes.
#pragma once

#include "framework/device/memory.h"
#include "framework/telemetry/memory_account.h"
#include "framework/train/parts.h"

namespace brim::train {

using telemetry::MemoryAccount;
using telemetry::ModuleBytes;

/// Of this rank, as of now; modules are left out. On the CPU the copy counts that a
/// checkpoint is written from while steps go on.
MemoryAccount memory_account(const JobConfig& job, const Parts& parts,
                             const device::Memory& memory);

}  // namespace brim::train
