// A run's newest metrics for a monitoring system, in Prometheus's text format 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace brim::telemetry {

/// The value of a Content-Type field that goes with text().
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

using Labels = std::vector<std::pair<std::string, std::string>>;  // names and values

/// Thread-safe: one thread takes lines, any asks for the text.
class RunMetrics {
 public:
  /// `about` describes the run: the labels of brim_run_info.
  explicit RunMetrics(const Labels& about);

  /// The numbers of a line of metrics.jsonl. A metric that later lines no longer have is forgotten
  /// after a minute, those of evaluations never.
  void take(const nlohmann::json& line, double now_s);

  /// "step": brim_step; "step_s": brim_step_seconds; "phases_s": {"forward": …}:
  /// brim_phase_seconds{phase="forward"}; "memory": {"peak_bytes": …}: brim_memory_peak_bytes; all
  /// of them gauges. Before the first line only brim_run_info.
  std::string text() const;

 private:
  struct Metric {
    double value;
    double taken_s;
  };
  const std::string info_;
  mutable std::mutex mutex_;
  std::map<std::string, Metric> metrics_;  // by name and label, as in the text
};

}  // namespace brim::telemetry
