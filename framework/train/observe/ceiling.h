// How fast a job's steps are where data costs nothing: they are taken on samples
// that are preloaded. Writes no file.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "framework/device/memory/memory.h"
#include "framework/train/job.h"

namespace brim::train {

struct Ceiling {
  double samples_per_s = 0;
  int64_t steps = 0;  // that were timed, after a few that were not
  double seconds = 0;
};

/// Takes steps of `job` for `seconds`, a few at least, alone on `device`: as its recipe says, but
/// on made-up samples of the shape of its training data, which must still be there, and with a
/// learning rate of 0, so that what is learned from them can't go wrong. Throws Error: kStopped
/// where a stop was asked for, and what building the job and its steps throw.
Ceiling measure_ceiling(JobConfig job, c10::Device device, device::Memory& memory, double seconds);

}  // namespace brim::train
