#include "framework/experiment/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/temporaries.h"
#include "framework/base/units.h"
#include "framework/experiment/bench/child.h"
#include "framework/experiment/bench/statistics.h"
#include "framework/experiment/bench/surroundings.h"
#include "framework/telemetry/run_record.h"

namespace brim::experiment {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr double kMeasured_s = 3.0;  // in each run, where --steps leaves it open
constexpr int64_t kFewestSteps = 20;
constexpr int64_t kMaxChosenSteps = 2000;
constexpr int64_t kPilotSteps = 20;
constexpr int kMaxPilots = 3;  // each twice as long as the one before
constexpr int64_t kFewestWarmup = 3;

std::vector<std::string> own_settings(int64_t steps, bool keeps_telemetry) {
  std::vector<std::string> words = {"--set", fmt::format("train.steps={}", steps),
                                    "--set", "schedule.steps=1000000000000",
                                    "--set", "eval.enabled=false",
                                    "--set", "checkpoint.enabled=false",
                                    "--set", "telemetry.exec=[]"};
  if (keeps_telemetry) return words;
  for (const char* set : {"telemetry.every_steps=1", "telemetry.tensorboard=false"}) {
    words.insert(words.end(), {"--set", set});
  }
  return words;
}

double others_cores(const MeasuredRun& run) { return run.conditions.value("others_cores", 0.0); }

class Bench {
 public:
  explicit Bench(const BenchPlan& plan) : plan_(plan) {
    result_.started = timestamp();
    result_.repeats = plan.repeats;
    result_.environment = fingerprint();
    for (const VariantPlan& variant : plan.variants) {
      result_.variants.push_back({.name = variant.name, .recipe = variant.recipe});
    }
  }

  BenchResult run() {
    const double start_s = now_s();
    for (size_t i = 0; i < plan_.variants.size(); ++i) pilot(i);
    const size_t count = plan_.variants.size();
    for (int64_t round = 0; round < plan_.repeats; ++round) {
      // Each round starts with another variant, so that none always follows the same.
      for (size_t i = 0; i < count; ++i) measure((static_cast<size_t>(round) + i) % count);
    }
    result_.seconds = now_s() - start_s;
    return std::move(result_);
  }

 private:
  /// Runs `warmup + measured` steps.
  MeasuredRun run_once(size_t index, int64_t warmup, int64_t measured) {
    const BenchVariant& variant = result_.variants[index];
    const fs::path run = scratch_.path() / "run";
    const fs::path recipe = scratch_.path() / "recipe.toml";
    std::vector<std::string> arguments = plan_.variants[index].arguments;
    if (!variant.recipe.empty()) {
      write_file(recipe, variant.recipe);
      arguments = {"--recipe", recipe.string()};
    }
    for (std::string& word : own_settings(warmup + measured, plan_.keeps_telemetry)) {
      arguments.push_back(std::move(word));
    }
    arguments.insert(arguments.end(), {"--output", run.string()});

    Watch watch;
    const ChildEnd end = run_child(arguments, scratch_.path() / "log", [&watch] { watch.look(); });
    json conditions = watch.finish(end.cpu_s);
    if (stop_requested()) {
      throw Error(Exit::kStopped, "stopped on request after {} of {}; nothing is kept", done_,
                  format_plural(runs(), "run"));
    }
    if (end.status != 0) throw error_of(end, variant.name);
    MeasuredRun measured_run = read_measured_run(run, measured);
    measured_run.resident_peak_bytes = end.resident_peak_bytes;
    measured_run.conditions = std::move(conditions);
    if (variant.job.is_null()) take_record(index, run);
    std::error_code ignored;
    fs::remove_all(run, ignored);
    return measured_run;
  }

  /// What the first run of a variant says of itself.
  void take_record(size_t index, const fs::path& run) {
    BenchVariant& variant = result_.variants[index];
    variant.recipe = read_file(run / "recipe.toml", Exit::kData, telemetry::kLongestRunFile);
    const json record =
        json::parse(read_file(run / "run.json", Exit::kData, telemetry::kLongestRunFile), nullptr,
                    /*allow_exceptions=*/false);
    variant.job = record.is_object() ? record.value("job", json::object()) : json::object();
    if (!record.is_object() || index != 0) return;
    json& libraries = result_.environment["libraries"] = record.value("versions", json::object());
    for (const char* own : {"brim", "commit"}) libraries.erase(own);  // the build's
    result_.environment["device"] = record.value("device", json());
    result_.environment["ranks"] = record.value("ranks", json());
    result_.environment["variables"] = record.value("environment", json::object());
  }

  /// Settles a variant's number of steps and of warm-up steps.
  void pilot(size_t index) {
    BenchVariant& variant = result_.variants[index];
    const std::optional<int64_t> asked = plan_.variants[index].steps;
    int64_t half = std::min(kPilotSteps, asked.value_or(kPilotSteps));
    MeasuredRun run = run_once(index, half, half);
    for (int more = 1; more < kMaxPilots && !run.is_steady; ++more) {
      half *= 2;
      run = run_once(index, half, half);
    }
    variant.warmup = std::max({kFewestWarmup, 2 * run.warmup_steps, plan_.variants[index].warmup});
    const double step_s = median(run.step_s);
    variant.steps = asked.value_or(std::clamp(static_cast<int64_t>(std::ceil(kMeasured_s / step_s)),
                                              kFewestSteps, kMaxChosenSteps));
    log::info("{}: {} a step, {} after {}; to measure: {} of {}", variant.name,
              format_duration(step_s), run.is_steady ? "steady" : "not steady",
              format_plural(run.warmup_steps, "step"), format_plural(plan_.repeats, "run"),
              format_plural(variant.warmup + variant.steps, "step"));
  }

  void measure(size_t index) {
    BenchVariant& variant = result_.variants[index];
    MeasuredRun run_of_variant = run_once(index, variant.warmup, variant.steps);
    for (; spare_runs_ > 0 && others_cores(run_of_variant) > kBusyOthers; --spare_runs_) {
      log::info("{}: other processes used {:.1f} cores during a run; repeating it", variant.name,
                others_cores(run_of_variant));
      run_of_variant = run_once(index, variant.warmup, variant.steps);
    }
    variant.runs.push_back(std::move(run_of_variant));
    ++done_;
    const MeasuredRun& run = variant.runs.back();
    log::info("run {} of {}: {}: {} samples/s{}", done_, runs(), variant.name,
              format_number(run.samples_per_s), run.is_steady ? "" : ", not steady");
  }

  int64_t runs() const { return plan_.repeats * static_cast<int64_t>(plan_.variants.size()); }

  const BenchPlan& plan_;
  TemporaryFolder scratch_{"brim-bench-"};
  BenchResult result_;
  int64_t done_ = 0;
  int64_t spare_runs_ = runs();  // disturbed runs that may be repeated: at most as many as count
};

}  // namespace

BenchResult run_bench(const BenchPlan& plan) { return Bench(plan).run(); }

}  // namespace brim::experiment
