// Times every operator that this thread and its backward passes run, and says for which module,
// in which phase and on which shapes: the measuring half of `trainer profile`.
#pragma once

#include <torch/nn/module.h>

#include <array>
#include <memory>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/telemetry/step_profile.h"
#include "framework/train/observe/call_times.h"
#include "framework/train/observe/device_times.h"

namespace brim::train {

/// Counts while it lives; one at a time in a process. An operator counts for the module whose
/// parameters an operator read last; forward, for "loss" from the one on that takes targets;
/// backward, until a parameter is read, for the module of the forward operator that its node
/// belongs to. Costs about a microsecond an operator, which it measures and keeps apart; where
/// steps call the same operators, CallTimes measures more of them for less.
class OperatorProfiler final : public PhaseObserver {
 public:
  /// Model and timeline outlive it. `keeps_order`: for what follows.
  OperatorProfiler(const torch::nn::Module& model, Timeline& timeline, bool keeps_order = false);
  ~OperatorProfiler() override;
  OperatorProfiler(const OperatorProfiler&) = delete;
  OperatorProfiler& operator=(const OperatorProfiler&) = delete;

  void begins(Phase phase) override;

  /// Counts no more.
  void stop();
  /// The calls so far, as they began; empty where several threads made them.
  std::vector<ExpectedCall> order() const;
  /// From now on times are those that CallTimes has measured of steps that made the same calls.
  void take_times(const StepTimes& times);
  /// From now on an operator's time is that of its kernels, which DeviceTimes has recorded beside
  /// this. Throws Error(kBug) where the two have not seen the same calls.
  void take_device_times(const DeviceCalls& calls);

  /// All calls so far as a mean of `steps`, longest first; those that took nothing are left out.
  std::vector<telemetry::OperatorCalls> mean_of(int64_t steps) const;
  /// What measuring took of each phase, a step.
  std::array<double, kPhaseCount> own_s(int64_t steps) const;

 private:
  class Calls;
  struct Installed;
  Timeline& timeline_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Installed> installed_;
};

}  // namespace brim::train
