// How long each operator's call took in steps that make the calls of one step again: a clock is
// read at either end, and no more is done.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/timeline.h"

namespace brim::train {

/// A call of a step, as OperatorProfiler::order() has them.
struct ExpectedCall {
  std::string name;  // as LibTorch has it
  Phase phase;
  bool operator==(const ExpectedCall&) const = default;
};

/// Means of a step.
struct StepTimes {
  std::vector<int64_t> self_ns;                    // by call; without the calls that it made
  std::array<int64_t, kPhaseCount> recorder_ns{};  // what recording took of each phase
};

/// Records while it lives; one at a time in a process.
class CallTimes {
 public:
  explicit CallTimes(std::vector<ExpectedCall> calls);
  ~CallTimes();
  CallTimes(const CallTimes&) = delete;
  CallTimes& operator=(const CallTimes&) = delete;

  /// A step is through, and counts where it `may` and made the same calls; whether it counts.
  bool end_step(bool may = true);
  /// Of the steps that count; at least one has.
  StepTimes mean() const;

 private:
  class Calls;
  struct Installed;
  static double ns_of_call(Calls& calls);

  std::unique_ptr<Calls> calls_;
  double recorder_ns_;  // of a call
  std::unique_ptr<Installed> installed_;
};

}  // namespace brim::train
