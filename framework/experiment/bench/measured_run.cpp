#include "framework/experiment/bench/measured_run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/units.h"
#include "framework/experiment/bench/steady.h"
#include "framework/experiment/metrics_line.h"

namespace brim::experiment {
namespace {

constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;

/// A line of metrics: means of the steps since the line before.
struct StepLine {
  int64_t step = 0;   // the last of them
  int64_t steps = 1;  // how many
  double step_s = 0.0;
  double samples = 0.0;  // a step
  double process_age_s = 0.0;
  double peak_bytes = 0.0;
  double power_w = 0.0;  // 0: no new reading in this step
  std::map<std::string, double> phases_s;
};

/// Nullopt for a line that is no step's.
std::optional<StepLine> step_of(const std::vector<LineMetric>& metrics) {
  StepLine step;
  double samples_per_s = 0.0;
  for (const LineMetric& metric : metrics) {
    if (metric.section == "phases_s") step.phases_s[std::string(metric.key)] = metric.value;
    if (metric.section == "memory" && metric.key == "peak_bytes") step.peak_bytes = metric.value;
    if (metric.section == "device" && metric.key == "power_w") step.power_w = metric.value;
    if (!metric.section.empty()) continue;
    if (metric.key == "step") step.step = static_cast<int64_t>(metric.value);
    if (metric.key == "step_s") step.step_s = metric.value;
    if (metric.key == "samples_per_s") samples_per_s = metric.value;
    if (metric.key == "process_age_s") step.process_age_s = metric.value;
  }
  step.samples = samples_per_s * step.step_s;
  const bool is_good = step.step_s > 0 && step.samples > 0 && std::isfinite(step.samples);
  return is_good ? std::optional(std::move(step)) : std::nullopt;
}

std::vector<StepLine> read_steps(const std::filesystem::path& path) {
  const std::string text = read_file(path, Exit::kData, kMaxMetricsBytes);
  std::vector<StepLine> steps;
  std::vector<LineMetric> metrics;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    if (read_metrics_line(rest.substr(0, end), metrics)) {
      if (auto step = step_of(metrics)) {
        step->steps = std::max<int64_t>(1, step->step - (steps.empty() ? 0 : steps.back().step));
        steps.push_back(std::move(*step));
      }
    }
    rest.remove_prefix(end + 1);
  }
  return steps;
}

/// How many lines at the end are about no more than `measured` steps.
size_t lines_of(const std::vector<StepLine>& lines, int64_t measured) {
  size_t count = 0;
  for (auto line = lines.rbegin(); line != lines.rend() && line->steps <= measured; ++line) {
    measured -= line->steps;
    ++count;
  }
  return count;
}

}  // namespace

MeasuredRun read_measured_run(const std::filesystem::path& folder, int64_t measured) {
  const std::filesystem::path path = folder / "metrics.jsonl";
  const std::vector<StepLine> lines = read_steps(path);
  const size_t count = lines_of(lines, measured);
  const std::span<const StepLine> last = std::span(lines).last(count);
  int64_t steps = 0;
  for (const StepLine& line : last) steps += line.steps;
  if (count == 0 || measured - steps >= last.front().steps) {
    throw Error(Exit::kData, "{}: expected the metrics of {}, found {}", path.string(),
                format_plural(measured, "step"), steps);
  }
  std::vector<double> all_s;
  for (const StepLine& line : lines) all_s.push_back(line.step_s);
  const std::optional<size_t> steady = steady_from(all_s, count);

  MeasuredRun run;
  run.is_steady = steady.has_value();
  const size_t warmup = steady.value_or(lines.size() - count);
  run.warmup_steps = warmup == 0 ? 0 : lines[warmup - 1].step;
  run.first_step_s = lines.front().process_age_s;
  double seconds = 0.0;
  double samples = 0.0;
  double watts = 0.0;
  int64_t readings = 0;
  for (const StepLine& line : last) {
    const auto weight = static_cast<double>(line.steps);
    run.step_s.push_back(line.step_s);
    seconds += weight * line.step_s;
    samples += weight * line.samples;
    for (const auto& [phase, value] : line.phases_s) {
      run.phases_s[phase] += value * weight / static_cast<double>(steps);
    }
    if (line.power_w > 0) {
      watts += line.power_w;
      ++readings;
    }
    run.peak_bytes = std::max(run.peak_bytes, static_cast<int64_t>(line.peak_bytes));
  }
  if (readings > 0) run.power_w = watts / static_cast<double>(readings);
  run.samples_per_s = samples / seconds;
  run.samples_per_step = samples / static_cast<double>(steps);
  return run;
}

}  // namespace brim::experiment
