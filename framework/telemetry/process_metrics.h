// What a run's process and its machine go through while it trains: metrics for metrics.jsonl that
// explain a slow run from outside the step.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace brim::telemetry {

/// Reads a few small files of /proc, at most once a second. Belongs to one thread.
class ProcessMetrics {
 public:
  /// `root` is where /proc is found: "/" except in tests.
  explicit ProcessMetrics(std::filesystem::path root = "/");

  /// Adds to a line, where a second has passed since the last time:
  ///   "process": {"resident_bytes", "swapped_bytes", "major_faults_per_s"} (since then)
  ///   "machine": {"load" (threads that run or want to, a minute's mean), "io_stalled_percent" (of
  ///   ten seconds, some thread waited for a disk)}
  /// What the kernel does not tell is left out.
  void add_to(nlohmann::json& line, double now_s);

 private:
  std::filesystem::path root_;
  double taken_s_;
  double major_faults_;
};

}  // namespace brim::telemetry
