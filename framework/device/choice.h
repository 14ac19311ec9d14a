// The device of a rank, once it is known which GPUs CUDA shows to this process (selection.h).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "framework/device/config.h"

namespace brim::device {

/// "auto": the CUDA device with the number `local_rank`, or the CPU where there is none; "cpu";
/// "cuda": that CUDA device, or the CPU where there is no CUDA and config.fallback says so;
/// "cuda:N" or "N", for a single rank on its machine, the same. Numbers are as CUDA_VISIBLE_DEVICES
/// leaves them. Makes a CUDA device current. Throws Error(kRecipe) for other words,
/// Error(kResource) for a device that isn't there.
c10::Device choose_device(const DeviceConfig& config, int64_t local_rank = 0,
                          int64_t local_world = 1);

}  // namespace brim::device
