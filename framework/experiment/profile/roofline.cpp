#include "framework/experiment/profile/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace brim::experiment {
namespace {

using telemetry::OperatorCalls;
using telemetry::StepProfile;

constexpr double kNoTime = 1e-9;  // a clock's tick

std::vector<WorkRow> longest_first(std::vector<WorkRow> rows) {
  std::ranges::stable_sort(rows, std::greater<>{},
                           [](const WorkRow& row) { return row.work.self_s; });
  return rows;
}

void add_calls(WorkRow& row, const OperatorCalls& calls, const telemetry::Peaks& peaks) {
  row.work += work_of(calls, peaks);
  if (calls.phase == Phase::kForward) row.forward_s += calls.self_s;
  if (calls.phase == Phase::kBackward) row.backward_s += calls.self_s;
}

/// What is left of a phase without operators.
std::string rest_name(Phase phase) {
  const std::string name(phase_name(phase));
  return phase == Phase::kDataWait || phase == Phase::kOther ? name : name + ", between operators";
}

std::string four_digits(double value) {
  const int decimals = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

double percent_of(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string in_ms(double seconds) { return four_digits(1e3 * seconds); }

std::string giga_per_s(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? four_digits(1e-9 * amount / seconds) : "–";
}

std::string_view bound_name(Bound bound) {
  constexpr std::array<std::string_view, 4> kNames = {"compute", "memory", "launch", "–"};
  return kNames[static_cast<size_t>(bound)];
}

Bound Work::bound() const {
  if (compute_s == 0 && memory_s == 0 && 2 * launch_s < self_s) return Bound::kUnknown;
  if (launch_s > std::max(compute_s, memory_s)) return Bound::kLaunch;
  return compute_s >= memory_s && compute_s > 0 ? Bound::kCompute : Bound::kMemory;
}

double Work::efficiency() const { return self_s > 0 ? std::max(compute_s, memory_s) / self_s : 0; }

double peak_flops(const OperatorCalls& calls, const telemetry::Peaks& peaks) {
  const auto found = peaks.flops_per_s.find(calls.product_format());
  return found == peaks.flops_per_s.end() ? 0 : found->second;
}

Work work_of(const OperatorCalls& calls, const telemetry::Peaks& peaks) {
  const double peak = peak_flops(calls, peaks);
  return {.calls = calls.calls,
          .self_s = calls.self_s,
          .flops = calls.flops,
          .bytes = calls.bytes,
          .compute_s = calls.flops > 0 && peak > 0 ? calls.flops / peak : 0,
          .memory_s = peaks.bytes_per_s > 0 ? calls.bytes / peaks.bytes_per_s : 0,
          .launch_s = calls.calls * peaks.call_s};
}

Work& operator+=(Work& sum, const Work& more) {
  sum.calls += more.calls;
  sum.self_s += more.self_s;
  sum.flops += more.flops;
  sum.bytes += more.bytes;
  sum.compute_s += more.compute_s;
  sum.memory_s += more.memory_s;
  sum.launch_s += more.launch_s;
  return sum;
}

std::vector<WorkRow> by_operator(const StepProfile& profile) {
  std::map<std::pair<std::string, Phase>, WorkRow> rows;
  for (const OperatorCalls& calls : profile.operators) {
    WorkRow& row = rows[{calls.name, calls.phase}];
    row.name = calls.name;
    row.phase = phase_name(calls.phase);
    add_calls(row, calls, profile.peaks);
  }
  std::vector<WorkRow> result;
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return longest_first(std::move(result));
}

std::vector<WorkRow> by_module(const StepProfile& profile) {
  std::map<std::string, WorkRow> rows;
  for (const OperatorCalls& calls : profile.operators) {
    if (calls.module.empty()) continue;
    WorkRow& row = rows[calls.module];
    row.name = calls.module;
    add_calls(row, calls, profile.peaks);
  }
  std::vector<WorkRow> result;
  for (auto& [name, row] : rows) result.push_back(std::move(row));
  return longest_first(std::move(result));
}

std::vector<Rest> rest_of(const StepProfile& profile) {
  std::array<double, kPhaseCount> seconds = profile.phase_s;
  double operators_s = 0;
  for (const OperatorCalls& calls : profile.operators) {
    seconds[static_cast<size_t>(calls.phase)] -= calls.self_s;
    operators_s += calls.self_s;
  }
  if (profile.is_on_gpu()) {  // which works behind the host
    return {{"GPU idle", std::max(0.0, profile.wall_s - operators_s)}};
  }
  double profiler_s = 0;
  std::vector<Rest> result;
  for (int i = 0; i < kPhaseCount; ++i) {
    const auto phase = static_cast<size_t>(i);
    profiler_s += profile.profiler_s[phase];
    const double left_s = seconds[phase] - profile.profiler_s[phase];
    if (left_s > kNoTime) result.push_back({rest_name(static_cast<Phase>(i)), left_s});
  }
  result.push_back({"measuring itself", profiler_s});
  std::ranges::stable_sort(result, std::greater<>{}, &Rest::seconds);
  return result;
}

}  // namespace brim::experiment
