// trainer profile: some training steps of a job, measured operator by operator. Writes no file.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "framework/device/memory/memory.h"
#include "framework/telemetry/step_profile.h"
#include "framework/train/job.h"

namespace brim::train {

/// Takes `steps` training steps of `job` after a few that warm up, alone on `device`, with the
/// recipe's own data and optimizer, but without CUDA graphs; then measures the device's peaks.
/// [batch] global and micro are numbers. Throws Error: kStopped where a stop was asked for, and
/// what building the job and its steps throw.
telemetry::StepProfile profile_job(JobConfig job, c10::Device device, device::Memory& memory,
                                   int64_t steps);

}  // namespace brim::train
