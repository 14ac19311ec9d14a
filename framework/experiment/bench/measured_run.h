// What one child run of a bench took, read from its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace brim::experiment {

struct MeasuredRun {
  double samples_per_s = 0.0;
  std::vector<double> step_s = {};              // of the measured lines of metrics, in order
  std::map<std::string, double> phases_s = {};  // means of them; sum to the mean step
  double samples_per_step = 0.0;
  double first_step_s = 0.0;  // from the process's start to the end of its first step
  int64_t peak_bytes = 0;     // of the device's tensors; 0: not recorded
  int64_t resident_peak_bytes = 0;
  double power_w = 0.0;      // mean, of the first rank's GPU; 0: not known
  int64_t warmup_steps = 0;  // after which the run was steady; all before the measured ones if not
  bool is_steady = false;
  nlohmann::json conditions = nlohmann::json::object();  // Watch::finish()
};

/// Reads the run's metrics.jsonl and measures the last `measured` steps, as far as its lines are
/// about those alone. Throws Error(kData) where there are not as many.
MeasuredRun read_measured_run(const std::filesystem::path& folder, int64_t measured);

}  // namespace brim::experiment
