#include "framework/experiment/bench/bench_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/columns.h"
#include "framework/base/units.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr double kNoisy = 0.05;         // coefficient of variation
constexpr double kWorthShowing = 0.01;  // share of the step

/// Null for what is not known.
json known(double value) { return value > 0 ? json(value) : json(); }

using Row = std::array<std::string, 7>;

Row row_of(const BenchVariant& variant, double first) {
  const Summary s = summary_of(variant);
  const int64_t peak = s.peak_bytes > 0 ? s.peak_bytes : s.resident_peak_bytes;
  const bool is_single = variant.runs.size() == 1;
  return {variant.name,
          format_number(s.samples_per_s),
          is_single ? "–" : format_number(s.interval.low) + "–" + format_number(s.interval.high),
          is_single ? "–" : fmt::format("{:.1f} %", 100 * s.variation),
          fmt::format("{} / {} ms", format_number(1e3 * s.step_p50_s),
                      format_number(1e3 * s.step_p95_s)),
          format_bytes(peak),
          fmt::format("{:.3f}×", s.samples_per_s / first)};
}

std::string table(const std::vector<Row>& rows) {
  std::array<size_t, 7> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = pad_right(row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += "  " + pad_left(row[i], widths[i]);
    text += line + "\n";
  }
  return text;
}

std::string interval_name(const Interval& interval) {
  return interval.confidence > 0 ? fmt::format("{:.3g} % interval", 100 * interval.confidence)
                                 : "interval";
}

/// "forward 45 %, backward 40 %, …": the largest first.
std::string shares(const std::map<std::string, double>& phases_s) {
  double whole = 0.0;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [phase, seconds] : phases_s) {
    whole += seconds;
    sorted.emplace_back(seconds, phase);
  }
  std::ranges::sort(sorted, std::greater());
  std::string text;
  for (const auto& [seconds, phase] : sorted) {
    if (!(seconds >= kWorthShowing * whole) || seconds <= 0) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", phase, 100 * seconds / whole);
  }
  return text;
}

/// What a sample takes is known where one GPU does all the work.
std::string energy(const Summary& summary, const json& ranks) {
  if (!(summary.power_w > 0)) return "";
  if (ranks != 1) return fmt::format("; {:.0f} W on the first GPU", summary.power_w);
  return fmt::format("; {:.0f} W, {} J a sample", summary.power_w,
                     format_number(summary.power_w / summary.samples_per_s));
}

/// "; 393 GFLOP a step, 0.31 TFLOP/s, 62 % of 0.5 TFLOP/s (…)"
std::string utilization(const Summary& summary) {
  if (!(summary.flops_per_step > 0)) return "";
  const double per_s = summary.flops_per_s();
  std::string text =
      fmt::format("; {} GFLOP a step, {} TFLOP/s", format_number(1e-9 * summary.flops_per_step),
                  format_number(1e-12 * per_s));
  if (!(summary.peak_flops > 0)) return text;
  return text + fmt::format(", {:.1f} % of {} TFLOP/s ({})", 100 * per_s / summary.peak_flops,
                            format_number(1e-12 * summary.peak_flops), summary.peak_source);
}

double worst_condition(const BenchResult& result, const char* name) {
  double worst = 0.0;
  for (const BenchVariant& variant : result.variants) {
    for (const MeasuredRun& run : variant.runs) {
      worst = std::max(worst, run.conditions.value(name, 0.0));
    }
  }
  return worst;
}

/// Why clocks of GPUs were held down in any run, each once.
std::set<std::string> throttle_reasons(const BenchResult& result) {
  std::set<std::string> reasons;
  for (const BenchVariant& variant : result.variants) {
    for (const MeasuredRun& run : variant.runs) {
      for (const json& gpu : run.conditions.value("gpus", json::array())) {
        for (const json& reason : gpu.at("throttle")) reasons.insert(reason.get<std::string>());
      }
    }
  }
  return reasons;
}

std::vector<std::string> doubts(const BenchResult& result) {
  std::vector<std::string> lines;
  const auto& runs = result.variants[0].runs;
  const double confidence = summary_of(result.variants[0]).interval.confidence;
  if (runs.size() == 1) {
    lines.emplace_back("one run says nothing of how much runs vary; 6 or more give an interval");
  } else if (confidence < kConfidence) {
    lines.push_back(
        fmt::format("the interval is the range of {} runs and covers the median with "
                    "{:.1f} %; 6 runs or more give 95 %",
                    runs.size(), 100 * confidence));
  }
  for (const BenchVariant& variant : result.variants) {
    const double variation = summary_of(variant).variation;
    if (variation > kNoisy) {
      lines.push_back(fmt::format("{}: its runs vary by {:.1f} %: give more --repeats or --steps",
                                  variant.name, 100 * variation));
    }
    const auto unsteady =
        std::ranges::count_if(variant.runs, [](const MeasuredRun& run) { return !run.is_steady; });
    if (unsteady > 0) {
      lines.push_back(fmt::format("{}: {} of {} {} not steady during the measurement", variant.name,
                                  unsteady, format_plural(std::ssize(variant.runs), "run"),
                                  unsteady == 1 ? "was" : "were"));
    }
  }
  if (const double cores = worst_condition(result, "others_cores"); cores > kBusyOthers) {
    lines.push_back(fmt::format("other processes used up to {:.1f} cores meanwhile", cores));
  }
  if (const double cores = worst_condition(result, "stolen_cores"); cores > kBusyOthers) {
    lines.push_back(fmt::format("the host took up to {:.1f} cores away meanwhile", cores));
  }
  if (worst_condition(result, "heat_throttles") > 0) {
    lines.emplace_back("the processor was slowed by heat meanwhile");
  }
  if (const auto reasons = throttle_reasons(result); !reasons.empty()) {
    lines.push_back(
        fmt::format("a GPU's clocks were held meanwhile by {}", fmt::join(reasons, ", ")));
  }
  if (const double seconds = worst_condition(result, "quota_throttled_s"); seconds > 0) {
    lines.push_back(fmt::format("the container's quota held a run up for {:.1f} s", seconds));
  }
  return lines;
}

}  // namespace

Summary summary_of(const BenchVariant& variant) {
  std::vector<double> rates;
  std::vector<double> steps;
  std::vector<double> starts;
  std::vector<double> watts;
  std::map<std::string, std::vector<double>> phases;
  Summary summary;
  for (const MeasuredRun& run : variant.runs) {
    rates.push_back(run.samples_per_s);
    starts.push_back(run.first_step_s);
    if (run.power_w > 0) watts.push_back(run.power_w);
    steps.insert(steps.end(), run.step_s.begin(), run.step_s.end());
    for (const auto& [phase, seconds] : run.phases_s) phases[phase].push_back(seconds);
    summary.peak_bytes = std::max(summary.peak_bytes, run.peak_bytes);
    summary.resident_peak_bytes = std::max(summary.resident_peak_bytes, run.resident_peak_bytes);
  }
  summary.samples_per_s = median(rates);
  summary.interval = median_interval(rates);
  summary.variation = coefficient_of_variation(rates);
  summary.step_p50_s = median(steps);
  summary.step_p95_s = quantile(steps, 0.95);
  summary.first_step_s = median(starts);
  if (!watts.empty()) summary.power_w = median(watts);
  if (variant.job.is_object()) {
    summary.flops_per_step =
        variant.job.value("flops_per_sample", 0.0) * variant.runs[0].samples_per_step;
    summary.peak_flops = variant.job.value("peak_flops", 0.0);
    summary.peak_source = variant.job.value("peak_source", std::string());
  }
  for (const auto& [phase, seconds] : phases) summary.phases_s[phase] = median(seconds);
  return summary;
}

json to_json(const Summary& summary) {
  return {{"samples_per_s", summary.samples_per_s},
          {"interval",
           {{"low", summary.interval.low},
            {"high", summary.interval.high},
            {"confidence", summary.interval.confidence}}},
          {"coefficient_of_variation", summary.variation},
          {"step_p50_s", summary.step_p50_s},
          {"step_p95_s", summary.step_p95_s},
          {"first_step_s", summary.first_step_s},
          {"phases_s", summary.phases_s},
          {"peak_bytes", summary.peak_bytes},
          {"resident_peak_bytes", summary.resident_peak_bytes},
          {"power_w", known(summary.power_w)},
          {"flops_per_step", known(summary.flops_per_step)},
          {"tflops_per_s", known(1e-12 * summary.flops_per_s())},
          {"peak_tflops_per_s", known(1e-12 * summary.peak_flops)},
          {"peak_source", summary.peak_source},
          {"model_flops_utilization",
           known(summary.peak_flops > 0 ? summary.flops_per_s() / summary.peak_flops : 0)}};
}

std::string report(const BenchResult& result) {
  const Summary of_first = summary_of(result.variants[0]);
  const double first = of_first.samples_per_s;
  std::vector<Row> rows = {{"variant", "samples/s", interval_name(of_first.interval), "variation",
                            "step p50 / p95", "peak memory", "to the first"}};
  for (const BenchVariant& variant : result.variants) rows.push_back(row_of(variant, first));
  std::string text = table(rows);
  for (const BenchVariant& variant : result.variants) {
    const Summary summary = summary_of(variant);
    text += fmt::format("{}: {}", variant.name, shares(summary.phases_s));
    text += utilization(summary);
    text += energy(summary, result.environment.value("ranks", json()));
    text += "\n";
  }
  for (const std::string& line : doubts(result)) text += "note: " + line + "\n";
  return text;
}

}  // namespace brim::experiment
