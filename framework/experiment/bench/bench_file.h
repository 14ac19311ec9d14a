// A bench as a JSON file: all that was measured, and enough to measure it again.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "framework/experiment/bench/bench.h"

namespace brim::experiment {

/// The file's content: "format", "started", "seconds", "repeats", "environment", and "variants",
/// each with its "recipe", "job", "steps", "warmup_steps", "summary" and "runs" (all of
/// MeasuredRun).
nlohmann::json to_json(const BenchResult& result);

/// What comparing and repeating need of it.
struct RecordedVariant {
  std::string name;
  std::string recipe;
  int64_t steps = 0;
  std::vector<double> samples_per_s;  // of its runs, all positive; at least one
};

struct BenchRecord {
  nlohmann::json environment;  // an object
  std::string started;
  int64_t repeats = 0;
  std::vector<RecordedVariant> variants;  // at least one; their names differ
};

/// Throws Error(kData), naming `where`, for anything but the text of such a file.
BenchRecord parse_bench(std::string_view text, const std::string& where);
BenchRecord read_bench(const std::filesystem::path& path);

/// The result as a record of it.
BenchRecord record_of(const BenchResult& result);

}  // namespace brim::experiment
