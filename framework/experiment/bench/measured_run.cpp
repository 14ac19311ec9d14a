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

constexpr int64_t kLimitBytes = int64_t{1} << 30;

struct StepLine {
  double step_s = 0.0;
  double samples = 0.0;
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
    if (metric.key == "step_s") step.step_s = metric.value;
    if (metric.key == "samples_per_s") samples_per_s = metric.value;
    if (metric.key == "process_age_s") step.process_age_s = metric.value;
  }
  step.samples = samples_per_s * step.step_s;
  const bool is_good = step.step_s > 0 && step.samples > 0 && std::isfinite(step.samples);
  return is_good ? std::optional(std::move(step)) : std::nullopt;
}

std::vector<StepLine> read_steps(const std::filesystem::path& path) {
  const std::string text = read_file(path, Exit::kData, kLimitBytes);
  std::vector<StepLine> steps;
  std::vector<LineMetric> metrics;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    if (read_metrics_line(rest.substr(0, end), metrics)) {
      if (auto step = step_of(metrics)) steps.push_back(std::move(*step));
    }
    rest.remove_prefix(end + 1);
  }
  return steps;
}

}  // namespace

MeasuredRun read_measured_run(const std::filesystem::path& folder, int64_t measured) {
  const std::filesystem::path path = folder / "metrics.jsonl";
  const std::vector<StepLine> steps = read_steps(path);
  if (static_cast<int64_t>(steps.size()) < measured || measured < 1) {
    throw Error(Exit::kData, "{}: expected the metrics of {}, found {}", path.string(),
                format_plural(measured, "step"), steps.size());
  }
  const auto count = static_cast<size_t>(measured);
  std::vector<double> all_s;
  for (const StepLine& step : steps) all_s.push_back(step.step_s);
  const std::optional<size_t> steady = steady_from(all_s, count);

  MeasuredRun run;
  run.is_steady = steady.has_value();
  run.warmup_steps = static_cast<int64_t>(steady.value_or(steps.size() - count));
  run.first_step_s = steps.front().process_age_s;
  double seconds = 0.0;
  double samples = 0.0;
  double watts = 0.0;
  int64_t readings = 0;
  for (const StepLine& step : std::span(steps).last(count)) {
    run.step_s.push_back(step.step_s);
    seconds += step.step_s;
    samples += step.samples;
    for (const auto& [phase, value] : step.phases_s) {
      run.phases_s[phase] += value / static_cast<double>(count);
    }
    if (step.power_w > 0) {
      watts += step.power_w;
      ++readings;
    }
    run.peak_bytes = std::max(run.peak_bytes, static_cast<int64_t>(step.peak_bytes));
  }
  if (readings > 0) run.power_w = watts / static_cast<double>(readings);
  run.samples_per_s = samples / seconds;
  run.samples_per_step = samples / static_cast<double>(count);
  return run;
}

}  // namespace brim::experiment
