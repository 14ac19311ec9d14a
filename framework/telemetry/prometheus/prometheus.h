// telemetry.prometheus: where a run shows its newest metrics to Prometheus while it trains.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

#include "framework/telemetry/prometheus/run_metrics.h"
#include "framework/telemetry/prometheus/text_endpoint.h"

namespace brim::telemetry {

struct PrometheusTarget {
  std::string host;            // where `file` is empty
  int port = 0;                // 0: any that is free
  std::filesystem::path file;  // for node_exporter's textfile collector
};

/// "127.0.0.1:9400", ":9400" (this machine alone), "[::1]:9400", "0.0.0.0:9400" (anyone),
/// "file:/var/lib/node_exporter/brim.prom"; nullopt for "". Throws Error(kRecipe).
std::optional<PrometheusTarget> read_prometheus_target(const std::string& text);

class Prometheus {
 public:
  /// A port that is in use, or a file that can't be written, is a warning: training continues,
  /// unseen.
  Prometheus(PrometheusTarget target, const Labels& about);
  /// The file goes, as the endpoint does: a run that has ended has no current metrics.
  ~Prometheus();
  Prometheus(const Prometheus&) = delete;
  Prometheus& operator=(const Prometheus&) = delete;

  /// The numbers of a line of metrics.jsonl. Never waits for a client or a disk.
  void take(const nlohmann::json& line);

 private:
  void write_files(const std::stop_token& stop);

  const PrometheusTarget target_;
  RunMetrics metrics_;
  std::unique_ptr<TextEndpoint> endpoint_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::jthread writer_;  // the last member: it uses the others
};

}  // namespace brim::telemetry
