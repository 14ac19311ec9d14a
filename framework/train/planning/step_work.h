// What a step costs a rank in time, whatever the strategy: measured by probes, or estimated from
// the model's operations and bytes.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/plan/step_time.h"
#include "framework/train/job.h"
#include "framework/train/planning/simulated_rank.h"
#include "framework/train/tuning/probe_job.h"

namespace brim::train {

/// What probes may take.
struct ProbeLimits {
  plan::Strategy strategy = {};  // under which the largest fits
  int64_t largest = 1;           // micro-batch
  int64_t unit = 1;              // the smallest
  bool recomputes = false;       // whether one of them is to recompute all blocks
};

struct MeasuredWork {
  plan::Work work = {};
  /// The micro-batch of a probe that did not fit in memory, though it was to; nothing is measured
  /// then. Workspaces of libraries are not counted.
  int64_t too_large = 0;
};

/// Up to three probes of two steps, on all ranks at the same time and each for itself, so that no
/// communication is in them: of the smallest micro-batch, of the largest that takes about half a
/// second, and of that one with recompute. `share` is a rank's part of the global batch. Every rank
/// calls it and gets the slowest one's.
MeasuredWork measure_work(JobConfig& job, c10::Device device,
                          const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                          const DataShape& shape, int64_t share, const ProbeLimits& limits);

/// Whether a probe of the largest, with the job's recompute, fits in the memory of every rank, each
/// by itself.
bool probe_fits(JobConfig& job, c10::Device device,
                const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                const DataShape& shape, int64_t share, const ProbeLimits& limits);

/// What a device does in a second.
struct DeviceRates {
  double flops = 0;   // of matrix products, at their peak
  double bytes = 0;   // of its memory
  double call_s = 0;  // seconds that an operator takes at least
};

/// Those of a rank whose neighbours measure too; of the slowest rank, on all. Takes half of
/// `cap_bytes` at most.
DeviceRates measure_rates(distributed::Group& group, c10::Device device, const std::string& format,
                          int64_t cap_bytes);

/// What a model takes.
struct ModelCosts {
  ForwardFlops flops = {};       // of a sample
  int64_t activation_bytes = 0;  // of a sample
  MemoryAccount state = {};      // of a rank that has all of it
};

/// From these alone: a sample takes the longer of its operations, at 40 % of the peak, and of five
/// passes over its activations: each is written and read in forward, read in backward, and its
/// gradient written and read.
plan::Work estimate_work(const ModelCosts& costs, const DeviceRates& rates);

}  // namespace brim::train
