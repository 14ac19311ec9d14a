// The metrics of a variant over its runs, and how they are told.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/experiment/bench/bench.h"
#include "framework/experiment/bench/statistics.h"

namespace brim::experiment {

struct Summary {
  double samples_per_s = 0.0;  // median of the runs
  Interval interval;           // of it
  double variation = 0.0;      // coefficient, of the runs
  double step_p50_s = 0.0;     // of all measured steps
  double step_p95_s = 0.0;
  double first_step_s = 0.0;               // median
  std::map<std::string, double> phases_s;  // medians of the runs' means
  int64_t peak_bytes = 0;                  // the largest of the runs
  int64_t resident_peak_bytes = 0;
  double power_w = 0.0;  // of the first rank's GPU, median of the runs that know it; 0: none does
  double flops_per_step = 0.0;   // of the model, forward and backward; 0: not known
  double peak_flops = 0.0;       // a second, of all devices together; 0: not known
  std::string peak_source = {};  // "data sheet of NVIDIA H200"

  double flops_per_s() const { return step_p50_s > 0 ? flops_per_step / step_p50_s : 0; }
};

/// Of a variant with at least one run.
Summary summary_of(const BenchVariant& variant);
nlohmann::json to_json(const Summary& summary);

/// A table with a line for each variant, their phases, and what makes the metrics doubtful: few
/// runs, variation, other processes, throttling.
std::string report(const BenchResult& result);

}  // namespace brim::experiment
