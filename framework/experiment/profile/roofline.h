// Operators of a profile held against what the device gives at most: the roofline model of
// Williams, Waterman and Patterson (Communications of the ACM, 2009), with the cost of a call as a
// third limit.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

/// What an operator would still wait for if it were perfect.
enum class Bound { kCompute, kMemory, kLaunch, kUnknown };
std::string_view bound_name(Bound bound);

/// Some of a profile's calls together, of a step.
struct Work {
  double calls = 0.0;
  double self_s = 0.0;
  double flops = 0.0;
  double bytes = 0.0;
  // The least time that each would take at the device's peaks.
  double compute_s = 0.0;
  double memory_s = 0.0;
  double launch_s = 0.0;

  /// The largest of the three; unknown where neither operations nor bytes are counted and the calls
  /// themselves are less than half of it.
  Bound bound() const;
  /// How near to the roofline: 1 where the time is what compute or memory take at their peaks.
  double efficiency() const;
};

Work work_of(const telemetry::OperatorCalls& calls, const telemetry::Peaks& peaks);
Work& operator+=(Work& sum, const Work& more);

/// A row of a table: calls that have something in common.
struct WorkRow {
  std::string name;   // the operator's or the module's
  std::string phase;  // "forward", …; "" where several
  Work work;
  double forward_s = 0.0, backward_s = 0.0;  // of work.self_s
};

/// By operator and phase, longest first.
std::vector<WorkRow> by_operator(const telemetry::StepProfile& profile);
/// Of forward and backward, by module, longest first.
std::vector<WorkRow> by_module(const telemetry::StepProfile& profile);

/// A part of the step that no operator claims.
struct Rest {
  std::string name;  // "forward, between operators", "data_wait", "measuring itself", …
  double seconds;
};

/// What the step took beside its operators, longest first; with them it sums to its wall time.
std::vector<Rest> rest_of(const telemetry::StepProfile& profile);

double percent_of(double part, double whole);
/// Milliseconds in four digits and no more than three decimals.
std::string in_ms(double seconds);
/// Giga a second in as many; "–" where there is nothing to divide.
std::string giga_per_s(double amount, double seconds);

/// The peak of products in the format that these calls multiply in.
double peak_flops(const telemetry::OperatorCalls& calls, const telemetry::Peaks& peaks);

}  // namespace brim::experiment
