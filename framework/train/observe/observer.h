// What only the training step can see, for the run's records (recorder.h). Code of your own is
// called by callbacks.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "framework/base/timeline.h"
#include "framework/device/memory/block_cache.h"
#include "framework/telemetry/memory_account.h"

namespace brim::device {
class StreamEvent;
}

namespace brim::train {

/// What the host knows of a finished step at once.
struct StepRecord {
  int64_t step;   // finished steps, this one included
  int64_t epoch;  // 0-based
  int64_t samples;
  double learning_rate;
  std::array<double, kPhaseCount> phase_s;  // sums to the step's wall time
  OverlappedWork overlapped;                // beside it
  int64_t host_syncs = 0;                   // waits of the host for a GPU
  device::MemoryStats memory = {};          // of the device's tensors; none asked for: zeros
};

/// What a step's device values mean, by position. kUnsmoothedLoss is NaN where the task does not
/// know it, and means nothing in steps without a line of metrics or without label smoothing.
enum StepValue { kLoss, kUnsmoothedLoss, kGradientNorm, kFoundInf, kScale, kStepValueCount };

/// Called on the thread that drives the step.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// From this step on passes have at most `size` samples.
  virtual void micro_batch(int64_t /*step*/, int64_t /*size*/) {}
  /// Where the memory of the first step went.
  virtual void memory(const telemetry::MemoryAccount& /*account*/) {}
  /// On a GPU: since `moment` the device has waited for other ranks. Null: it does not wait.
  virtual void waits_since(const std::shared_ptr<const device::StreamEvent>& /*moment*/) {}
};

}  // namespace brim::train
