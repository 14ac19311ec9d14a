// How fast the ranks at hand exchange tensors, by a few short collectives.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/plan/step_time.h"

namespace brim::train {

/// Every rank calls it and gets the same: of the slowest rank, with the copies that sharded models
/// make around a collective. Takes a fraction of a second over Gloo on one machine; empty for a
/// rank alone. Its tensors take half of `cap_bytes`, the same on all ranks, at most. On the CPU
/// nothing hides behind compute: collectives take the same cores.
plan::Network measure_network(distributed::Group& group, c10::Device device,
                              const device::Memory& memory, int64_t cap_bytes);

}  // namespace brim::train
