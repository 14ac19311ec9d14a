// trainer bench: throughput of a recipe, or of several variants of it, as an experiment that can be
// trusted and made again.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/cli/bench_flops.h"
#include "framework/cli/bench_options.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/experiment/bench/baselines.h"
#include "framework/experiment/bench/bench.h"
#include "framework/experiment/bench/bench_file.h"
#include "framework/experiment/bench/bench_summary.h"
#include "framework/experiment/bench/comparison.h"
#include "framework/recipe/document.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kUsualMargin = 0.02;
constexpr size_t kTimeWithoutOffset = 19;  // of timestamp(): "2026-11-25T21:14:37"

/// A new name in a folder: "digits-2026-11-25T21-14-37.json".
fs::path new_file(const fs::path& folder, const cxxopts::ParseResult& options) {
  const char* source = options.count("replay") != 0 ? "replay" : "recipe";
  const std::string name = fs::path(options[source].as<std::string>()).stem().string();
  std::string time = timestamp().substr(0, kTimeWithoutOffset);
  std::ranges::replace(time, ':', '-');
  std::error_code ignored;
  fs::path path = folder / fmt::format("{}-{}.json", name, time);
  for (int more = 2; fs::exists(path, ignored); ++more) {
    path = folder / fmt::format("{}-{}-{}.json", name, time, more);
  }
  return path;
}

/// The files to write the result to, or the folder to make one in. Folders that aren't there are
/// found before anything runs.
std::vector<fs::path> outputs(const cxxopts::ParseResult& options) {
  std::vector<fs::path> paths;
  if (options.count("out") != 0) {
    paths.emplace_back(options["out"].as<std::string>());
    const fs::path folder = fs::absolute(paths.back()).parent_path();
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) {
      throw Error(Exit::kResource, "--out {}: there is no folder {}", paths.back().string(),
                  folder.string());
    }
    const bool is_folder = fs::is_directory(paths.back(), ignored);
    require_writable("--out " + paths.back().string(), is_folder ? paths.back() : folder);
    if (!is_folder) require_replaceable(paths.back());
    if (fs::is_regular_file(paths.back(), ignored)) {
      try {
        experiment::read_bench(paths.back());
      } catch (const Error&) {
        throw Error(Exit::kRecipe,
                    "--out {}: there is a file already that is no result of a bench; choose "
                    "another name",
                    paths.back().string());
      }
    }
  }
  if (options.count("save-baseline") != 0) {
    paths.push_back(experiment::baseline_path(options["save-baseline"].as<std::string>()));
    make_folder(paths.back().parent_path());
  }
  return paths;
}

experiment::BenchPlan plan_of_recipe(const cxxopts::ParseResult& options) {
  const std::string recipe = required_option(options, "bench", "recipe");
  std::vector<experiment::Sweep> sweeps;
  if (options.count("sweep") != 0) {
    for (const std::string& text : options["sweep"].as<std::vector<std::string>>()) {
      sweeps.push_back(experiment::parse_sweep(text));
    }
  }
  return {.variants = plan_variants(recipe, fs::path(recipe).stem().string(), sweeps, options),
          .repeats = repeats_option(options)};
}

experiment::BenchPlan plan_of_record(const experiment::BenchRecord& record, const std::string& path,
                                     const cxxopts::ParseResult& options) {
  for (const char* name : {"recipe", "sweep", "config", "set", "devices"}) {
    if (options.count(name) == 0) continue;
    throw UsageError(
        "--{} does not go with --replay, which measures what its file holds; leave one out", name);
  }
  if (options.count("data") != 0) {
    throw UsageError("--data does not go with --replay: its file says which data");
  }
  experiment::BenchPlan plan{
      .variants = {},
      .repeats = options.count("repeats") != 0 ? repeats_option(options) : record.repeats};
  const auto author =
      options.count("trust-library") != 0 ? recipe::Author::kUser : recipe::Author::kBenchFile;
  for (const experiment::RecordedVariant& variant : record.variants) {
    train::read_job(
        recipe::parse(variant.recipe, path + ": the recipe of " + variant.name, author));
    plan.variants.push_back({.name = variant.name,
                             .arguments = {},
                             .recipe = variant.recipe,
                             .steps = steps_option(options).value_or(variant.steps)});
  }
  return plan;
}

int bench(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  require_no_launcher("bench");
  std::optional<experiment::BenchRecord> before;
  experiment::BenchPlan plan;
  if (parsed.count("replay") != 0) {
    const auto path = parsed["replay"].as<std::string>();
    before = experiment::read_bench(path);
    plan = plan_of_record(*before, path, parsed);
  } else {
    plan = plan_of_recipe(parsed);
  }
  const std::vector<fs::path> paths = outputs(parsed);
  experiment::BenchResult result = experiment::run_bench(plan);
  add_model_metrics(result);

  nlohmann::json json = experiment::to_json(result);
  const std::string text = json_line(json);
  std::optional<experiment::Comparison> comparison;
  if (before) {
    comparison = experiment::compare(*before, experiment::record_of(result), kUsualMargin);
    json["comparison"] = experiment::to_json(*comparison);
  }
  if (parsed.count("json") != 0) {
    fmt::print("{}", json_line(json));
  } else {
    fmt::print("{}", printable_lines(experiment::report(result)));
    if (comparison) {
      fmt::print("A: {}\n{}", printable(before->started),
                 printable_lines(experiment::report(*comparison)));
    }
  }
  std::fflush(stdout);  // what was measured stays where a file below can't be written
  for (const fs::path& output : paths) {
    std::error_code ignored;
    const fs::path path = fs::is_directory(output, ignored) ? new_file(output, parsed) : output;
    write_file(path, text);
    log::info("written to {}; trainer bench --replay measures it again", path.string());
  }
  return 0;
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .arguments = "RECIPE",
          .summary = "how fast a recipe trains",
          .details =
              "Measures a recipe's throughput in fresh processes, in turn where there are "
              "several variants, and says how sure that is.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("recipe", "a recipe: a path, or a bundled one's name",
                                      value<std::string>(), "RECIPE");
                add_bench_options(options);
                options.add_options()(
                    "sweep",
                    "a key and the values that it takes in turn, as in batch.micro=8,16; may be "
                    "repeated",
                    value<std::vector<std::string>>(), "KEY=VALUES")(
                    "out",
                    "a JSON file for all that was measured, or a folder of them, for trainer "
                    "compare FOLDER",
                    value<std::string>(),
                    "FILE|FOLDER")("save-baseline", "keep it as benchmarks/baselines/NAME.json",
                                   value<std::string>(), "NAME")(
                    "replay", "measure again what this file of trainer bench holds, and compare",
                    value<std::string>(), "FILE");
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer bench digits --repeats 3", "its throughput, with its interval"},
                       {"trainer bench digits --sweep batch.micro=16,32,64 --out sizes.json",
                        "which micro-batch is fastest"}},
          .run = bench};
}

}  // namespace brim::cli
