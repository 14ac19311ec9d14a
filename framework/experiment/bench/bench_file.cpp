#include "framework/experiment/bench/bench_file.h"

#include <cmath>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/experiment/bench/bench_summary.h"
#include "framework/experiment/bench/sweep.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "brim bench 1";
constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr size_t kMaxVariantNameBytes = 4096;

json to_json(const MeasuredRun& run) {
  return {{"samples_per_s", run.samples_per_s},
          {"step_s", run.step_s},
          {"phases_s", run.phases_s},
          {"samples_per_step", run.samples_per_step},
          {"first_step_s", run.first_step_s},
          {"peak_bytes", run.peak_bytes},
          {"resident_peak_bytes", run.resident_peak_bytes},
          {"power_w", run.power_w > 0 ? json(run.power_w) : json()},
          {"warmup_steps", run.warmup_steps},
          {"is_steady", run.is_steady},
          {"conditions", run.conditions}};
}

json to_json(const BenchVariant& variant) {
  json runs = json::array();
  for (const MeasuredRun& run : variant.runs) runs.push_back(to_json(run));
  return {{"name", variant.name},
          {"recipe", variant.recipe},
          {"job", variant.job},
          {"steps", variant.steps},
          {"warmup_steps", variant.warmup},
          {"summary", to_json(summary_of(variant))},
          {"runs", std::move(runs)}};
}

/// Reads members of objects of one file and complains with their place in it.
class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(Exit::kData, "{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  const json& member(const json& object, const char* key, const std::string& place) const {
    const auto found = object.find(key);
    if (found == object.end()) fail("expected \"{}\" in {}, found none", key, place);
    return *found;
  }

  std::string text(const json& object, const char* key, const std::string& place) const {
    const json& value = member(object, key, place);
    if (!value.is_string()) fail("{}: \"{}\": expected text, found {}", place, key, kind(value));
    return value.get<std::string>();
  }

  int64_t whole(const json& object, const char* key, const std::string& place, int64_t low,
                int64_t high) const {
    const json& value = member(object, key, place);
    if (!value.is_number_integer() || value < low || value > high) {
      fail("{}: \"{}\": expected a whole number from {} to {}, found {}", place, key, low, high,
           kind(value));
    }
    return value.get<int64_t>();
  }

  const json& list(const json& object, const char* key, const std::string& place, size_t low,
                   size_t high) const {
    const json& value = member(object, key, place);
    if (!value.is_array() || value.size() < low || value.size() > high) {
      fail("{}: \"{}\": expected a list of {} to {}, found {}", place, key, low, high, kind(value));
    }
    return value;
  }

  void expect_object(const json& value, const std::string& place) const {
    if (!value.is_object()) fail("{}: expected an object, found {}", place, kind(value));
  }

  static std::string kind(const json& value) {
    if (value.is_array()) return fmt::format("a list of {}", value.size());
    if (value.is_number()) return value.dump();
    return value.type_name();
  }

 private:
  std::string where_;
};

RecordedVariant read_variant(const Reader& reader, const json& value, const std::string& place) {
  reader.expect_object(value, place);
  RecordedVariant variant{.name = reader.text(value, "name", place),
                          .recipe = reader.text(value, "recipe", place),
                          .steps = reader.whole(value, "steps", place, 1, kMaxSteps),
                          .samples_per_s = {}};
  if (variant.name.empty() || variant.name.size() > kMaxVariantNameBytes) {
    reader.fail("{}: \"name\": expected 1 to {} bytes, found {}", place, kMaxVariantNameBytes,
                variant.name.size());
  }
  for (const json& run : reader.list(value, "runs", place, 1, kMaxRepeats)) {
    reader.expect_object(run, place + ": a run");
    const json& metric = reader.member(run, "samples_per_s", place + ": a run");
    const double found = metric.is_number() ? metric.get<double>() : 0.0;
    if (!(found >= 1e-12 && found <= 1e15)) {
      reader.fail("{}: \"samples_per_s\" of a run: expected a positive number, found {}", place,
                  Reader::kind(metric));
    }
    variant.samples_per_s.push_back(found);
  }
  return variant;
}

}  // namespace

json to_json(const BenchResult& result) {
  json variants = json::array();
  for (const BenchVariant& variant : result.variants) variants.push_back(to_json(variant));
  return {{"format", kFormat},
          {"started", result.started},
          {"seconds", result.seconds},
          {"repeats", result.repeats},
          {"environment", result.environment},
          {"variants", std::move(variants)}};
}

BenchRecord parse_bench(std::string_view text, const std::string& where) {
  json file;
  try {
    file = parse_json(text, where, {.bytes = kMaxFileBytes, .depth = 16});
  } catch (const Error& error) {
    throw Error(Exit::kData, std::string(error.what()));
  }
  const Reader reader(where);
  if (!file.is_object() || file.value("format", json()) != kFormat) {
    reader.fail(
        "expected the file of a bench (\"format\": \"{}\"), as trainer bench --out writes "
        "it, found another",
        kFormat);
  }
  BenchRecord record{.environment = reader.member(file, "environment", "the file"),
                     .started = reader.text(file, "started", "the file"),
                     .repeats = reader.whole(file, "repeats", "the file", 1, kMaxRepeats),
                     .variants = {}};
  reader.expect_object(record.environment, "\"environment\"");
  std::set<std::string> names;
  for (const json& value : reader.list(file, "variants", "the file", 1, kMaxVariants)) {
    record.variants.push_back(
        read_variant(reader, value, fmt::format("variant {}", record.variants.size() + 1)));
    if (!names.insert(record.variants.back().name).second) {
      reader.fail("two variants are called {}", in_quotes(record.variants.back().name));
    }
  }
  return record;
}

BenchRecord read_bench(const std::filesystem::path& path) {
  return parse_bench(read_file(path, Exit::kData, kMaxFileBytes), path.string());
}

BenchRecord record_of(const BenchResult& result) {
  BenchRecord record{.environment = result.environment,
                     .started = result.started,
                     .repeats = result.repeats,
                     .variants = {}};
  for (const BenchVariant& variant : result.variants) {
    record.variants.push_back({.name = variant.name,
                               .recipe = variant.recipe,
                               .steps = variant.steps,
                               .samples_per_s = {}});
    for (const MeasuredRun& run : variant.runs) {
      record.variants.back().samples_per_s.push_back(run.samples_per_s);
    }
  }
  return record;
}

}  // namespace brim::experiment
