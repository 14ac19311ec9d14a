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

#include "framework/telemetry/http/address.h"
#include "framework/telemetry/http/http_server.h"
#include "framework/telemetry/prometheus/run_metrics.h"

namespace brim::telemetry {

struct PrometheusTarget {
  Address address;             // where `file` is empty
  std::filesystem::path file;  // for node_exporter's textfile collector
};

/// "127.0.0.1:9400", ":9400" (this machine alone), "[::1]:9400", "0.0.0.0:9400" (anyone),
/// "file:/var/lib/node_exporter/brim.prom"; nullopt for "". Throws Error(kRecipe).
std::optional<PrometheusTarget> read_prometheus_target(const std::string& text);

class Prometheus {
 public:
  /// A port that is in use, or a file that can't be written, is a warning: training continues,
  /// unseen.
  /// `folder` is the run's: the page at / says how to watch it.
  Prometheus(PrometheusTarget target, const Labels& about, const std::filesystem::path& folder);
  /// The file goes, as the server does: a run that has ended has no current metrics.
  ~Prometheus();
  Prometheus(const Prometheus&) = delete;
  Prometheus& operator=(const Prometheus&) = delete;

  /// The numbers of a line of metrics.jsonl. Never waits for a client or a disk.
  void take(const nlohmann::json& line);

 private:
  void write_files(const std::stop_token& stop);

  PrometheusTarget target_;
  RunMetrics metrics_;
  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::jthread writer_;  // the last member: it uses the others
};

}  // namespace brim::telemetry
