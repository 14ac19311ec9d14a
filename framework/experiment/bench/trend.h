// Results of trainer bench over time: each variant on each machine, and whether the newest result
// is as fast as those before it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/experiment/bench/bench_file.h"
#include "framework/experiment/bench/comparison.h"

namespace brim::experiment {

struct TrendPoint {
  std::string started;
  std::string commit;  // of Brim; "?": not recorded
  double samples_per_s = 0.0;
  Interval interval;  // of it
};

struct Trend {
  std::string name;                // the variant's
  std::string machine;             // "cpu, 2 cores of AMD EPYC 9R14"
  std::vector<TrendPoint> points;  // the oldest first; at least one
  bool is_newest = false;          // its last point is of the newest of all results

  // Of the newest result to those before it, the last 100 runs of theirs; nullopt without any.
  std::optional<Ratio> ratio = {};
  Verdict verdict = Verdict::kSame;
  double variation = 0.0;       // coefficient, of the results before it
  bool has_new_recipe = false;  // the newest result's recipe is not that of the one before
};

/// Results belong together where the variant's name, the device, the number of ranks, the GPUs, the
/// processor and the number of cores are the same. 0 ≤ margin < 1 as in judge().
std::vector<Trend> trends_of(std::vector<BenchRecord> records, double margin);

/// status_of() the verdicts on the newest of all results.
int status_of(std::span<const Trend> trends);

std::string report(std::span<const Trend> trends);
nlohmann::json to_json(std::span<const Trend> trends);

}  // namespace brim::experiment
