// --profile: what the steps FIRST to LAST of a run do, operator by operator, as a Kineto trace that
// Perfetto and TensorBoard's profile plugin open. The phases of a step are ranges in it, and, on a
// GPU, NVTX ranges for Nsight also where nothing is profiled.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/base/timeline.h"
#include "framework/device/memory/memory.h"

namespace brim::train {

/// 1-based, both included.
struct ProfileSteps {
  int64_t first = 1;
  int64_t last = 1;
};

/// "steps=10..15". Throws Error(kRecipe) for anything else, and for more steps than a trace in
/// memory and its reader can hold.
ProfileSteps read_profile_steps(const std::string& text);

/// Belongs to the thread that drives the steps of one run; the timeline outlives it.
class Profiler final : public PhaseObserver {
 public:
  Profiler(Timeline& timeline, c10::Device device);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Asks for a trace of `steps` in `file`, which is replaced, and for their memory snapshot beside
  /// it, for PyTorch's memory viewer: x.memory.pickle beside x.pt.trace.json, else the name of
  /// `file` with .memory.pickle after it.
  void record(ProfileSteps steps, std::filesystem::path file, device::Memory& memory);

  /// Around each step, by its 1-based number.
  void before(int64_t step);
  void after(int64_t step);
  /// The run is over: writes what was recorded of steps that it did not get to, and says so.
  void finish(int64_t last_step);

  void begins(Phase phase) override;

 private:
  /// A named piece of time in the trace and in Nsight. Ends where it is destroyed; innermost first.
  class Range {
   public:
    Range(const std::string& name, bool for_nsight);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    at::RecordFunction record_{at::RecordScope::USER_SCOPE};
    bool for_nsight_;
  };
  void start();
  void write();
  void write_trace();

  Timeline& timeline_;
  c10::Device device_;
  device::Memory* memory_ = nullptr;
  std::optional<ProfileSteps> steps_;
  std::filesystem::path file_;
  bool is_recording_ = false;
  int64_t recorded_steps_ = 0;
  std::optional<Range> step_;
  std::optional<Range> phase_;
};

}  // namespace brim::train
