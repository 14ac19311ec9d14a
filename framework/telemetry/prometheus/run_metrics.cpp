#include "framework/telemetry/prometheus/run_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace brim::telemetry {
namespace {

constexpr double kForgottenS = 60;
constexpr std::string_view kEvaluation = "brim_eval_";

/// Letters, digits and '_' as they are, anything else as '_'.
std::string as_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!fits) c = '_';
  }
  return name;
}

/// Prometheus spells units out: "step_s" is "step_seconds".
std::string with_unit(std::string name) {
  const bool is_rate = name.ends_with("_per_s");
  if (name.ends_with("_s")) name.replace(name.size() - 1, 1, is_rate ? "second" : "seconds");
  return name;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '\\' || c == '"') result += '\\';
      result += c;
    }
  }
  return result;
}

/// "brim_loss", "brim_memory_peak_bytes", "brim_phase_seconds{phase=\"forward\"}".
std::string series_name(std::string_view section, std::string_view key) {
  if (section == "phases_s") return fmt::format("brim_phase_seconds{{phase=\"{}\"}}", escaped(key));
  if (section == "overlapped_s")
    return fmt::format("brim_overlapped_seconds{{work=\"{}\"}}", escaped(key));
  const std::string name = with_unit(as_name(key));
  return section.empty() ? "brim_" + name : fmt::format("brim_{}_{}", as_name(section), name);
}

std::string as_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string info_line(const Labels& about) {
  std::string labels;
  for (const auto& [name, value] : about) {
    labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "" : ",", as_name(name), escaped(value));
  }
  return fmt::format(
      "# HELP brim_run_info The run that these metrics are of.\n"
      "# TYPE brim_run_info gauge\nbrim_run_info{{{}}} 1\n",
      labels);
}

}  // namespace

RunMetrics::RunMetrics(const Labels& about) : info_(info_line(about)) {}

void RunMetrics::take(const nlohmann::json& line, double now_s) {
  const std::scoped_lock lock(mutex_);
  const auto take_number = [&](std::string_view section, const std::string& key,
                               const nlohmann::json& value) {
    if (!value.is_number()) return;
    metrics_[series_name(section, key)] = {value.get<double>(), now_s};
  };
  for (const auto& [key, value] : line.items()) {
    take_number("", key, value);
    if (!value.is_object()) continue;
    for (const auto& [inner, metric] : value.items()) take_number(key, inner, metric);
  }
  std::erase_if(metrics_, [now_s](const auto& entry) {
    return now_s - entry.second.taken_s > kForgottenS && !entry.first.starts_with(kEvaluation);
  });
}

std::string RunMetrics::text() const {
  std::map<std::string, Metric> metrics;
  {
    const std::scoped_lock lock(mutex_);
    metrics = metrics_;
  }
  std::string text = info_;
  std::string family;  // of the lines before; those of one follow each other
  for (const auto& [name, metric] : metrics) {
    const std::string own = name.substr(0, name.find('{'));
    if (own != family) text += fmt::format("# TYPE {} gauge\n", own);
    text += fmt::format("{} {}\n", name, as_text(metric.value));
    family = own;
  }
  return text;
}

}  // namespace brim::telemetry
