// trainer compare A B: is the second faster than the first, slower, or can't it be said; the same
// of the newest result in a folder and those before it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/folders.h"
#include "framework/base/json.h"
#include "framework/base/printable.h"
#include "framework/cli/bench_options.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/experiment/bench/baselines.h"
#include "framework/experiment/bench/bench.h"
#include "framework/experiment/bench/bench_file.h"
#include "framework/experiment/bench/comparison.h"
#include "framework/experiment/bench/trend.h"

namespace brim::cli {
namespace {

using experiment::BenchRecord;

/// A and B as given: files of results, or recipes.
std::vector<std::string> sides_of(const cxxopts::ParseResult& options) {
  std::vector<std::string> sides;
  if (options.count("baseline") != 0) {
    sides.push_back(experiment::find_baseline(options["baseline"].as<std::string>()).string());
  }
  if (options.count("sides") != 0) {
    for (const auto& side : options["sides"].as<std::vector<std::string>>()) sides.push_back(side);
  }
  if (sides.size() != 2) {
    throw UsageError("expected {}, found {} of them; try: trainer compare before.json after.json",
                     options.count("baseline") != 0
                         ? "--baseline NAME and one file or recipe"
                         : "two files of trainer bench, two recipes, or a folder of results",
                     sides.size() - std::min<size_t>(sides.size(), options.count("baseline")));
  }
  return sides;
}

bool is_file(const std::string& side) { return side.ends_with(".json"); }

double margin_of(const cxxopts::ParseResult& options) {
  const auto margin = options["margin"].as<double>();
  if (!(margin >= 0 && margin < 1)) {
    throw UsageError("--margin: expected a share from 0 to below 1, found {}", margin);
  }
  return margin;
}

/// Reads the sides that are files, then runs the recipes, together where both are.
std::vector<BenchRecord> records_of(const std::vector<std::string>& sides,
                                    const cxxopts::ParseResult& options) {
  std::vector<BenchRecord> records(sides.size());
  experiment::BenchPlan plan{.variants = {}, .repeats = repeats_option(options)};
  for (size_t i = 0; i < sides.size(); ++i) {
    if (is_file(sides[i])) {
      records[i] = experiment::read_bench(sides[i]);
      continue;
    }
    const std::string name = fmt::format("{}: {}", i == 0 ? 'A' : 'B', sides[i]);
    for (auto& variant : plan_variants(sides[i], name, {}, options)) {
      plan.variants.push_back(std::move(variant));
    }
  }
  if (plan.variants.empty()) return records;
  BenchRecord measured = experiment::record_of(experiment::run_bench(plan));
  std::vector<experiment::RecordedVariant> variants = std::exchange(measured.variants, {});
  size_t next = 0;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (is_file(sides[i])) continue;
    records[i] = measured;
    records[i].variants = {variants[next++]};
  }
  return records;
}

/// The folder of results over time; empty where two sides are compared.
std::string folder_of(const cxxopts::ParseResult& options) {
  if (options.count("baseline") != 0 || options.count("sides") == 0) return "";
  const auto sides = options["sides"].as<std::vector<std::string>>();
  std::error_code ignored;
  return sides.size() == 1 && std::filesystem::is_directory(sides[0], ignored) ? sides[0] : "";
}

int compare_over_time(const std::string& folder, double margin, bool wants_json) {
  constexpr std::array<std::string_view, 1> kExtensions = {".json"};
  std::vector<BenchRecord> records;
  for (const std::string& path : files_below(folder, kExtensions)) {
    records.push_back(experiment::read_bench(path));
  }
  const std::vector<experiment::Trend> trends = experiment::trends_of(std::move(records), margin);
  fmt::print("{}", wants_json ? json_line(experiment::to_json(trends))
                              : printable_lines(experiment::report(trends)));
  return experiment::status_of(trends);
}

int compare(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  require_no_launcher("compare");
  const double margin = margin_of(parsed);
  if (const std::string folder = folder_of(parsed); !folder.empty()) {
    return compare_over_time(folder, margin, parsed.count("json") != 0);
  }
  const std::vector<BenchRecord> records = records_of(sides_of(parsed), parsed);
  const experiment::Comparison comparison = experiment::compare(records[0], records[1], margin);
  fmt::print("{}", parsed.count("json") != 0 ? json_line(experiment::to_json(comparison))
                                             : printable_lines(experiment::report(comparison)));
  return experiment::status_of(comparison);
}

}  // namespace

Command compare_command() {
  return {.name = "compare",
          .arguments = "A B",
          .summary = "is one recipe or result faster than another?",
          .details =
              "Compares two results of trainer bench (.json), or two recipes, which it runs "
              "in turn. Of a folder of results it shows how fast each recipe was over time, and "
              "compares the newest result with those before it. Leaves with status 0 where B, or "
              "the newest, is as fast or faster, 10 where it is slower, 11 where it is too noisy "
              "to say.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("sides", "files of trainer bench, recipes, or a folder",
                                      value<std::vector<std::string>>(), "RECIPE|FILE...")(
                    "baseline", "what trainer bench --save-baseline kept, in A's place",
                    value<std::string>(),
                    "NAME")("margin", "share of the speed by which B may be slower",
                            value<double>()->default_value("0.02"), "SHARE");
                add_bench_options(options);
                add_json_option(options);
              },
          .positional = {"sides"},
          .examples = {{"trainer compare before.json after.json", "two results"},
                       {"trainer compare benchmarks/history", "results over time"},
                       {"trainer compare digits faster.toml --repeats 5", "two recipes in turn"}},
          .run = compare};
}

}  // namespace brim::cli
