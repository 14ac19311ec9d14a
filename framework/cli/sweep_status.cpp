// trainer sweep status FOLDER: how far the trials of a sweep are, whether or not it runs.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/printable.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/sweep/store.h"
#include "framework/sweep/table.h"

namespace brim::cli {
namespace {

int show_status(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  if (options.count("json") != 0 && options.count("csv") != 0) {
    throw UsageError("--json does not go with --csv; leave one out");
  }
  sweep::Store store(required_option(options, "sweep status", "folder"));
  const std::vector<sweep::Trial> trials = store.trials();
  if (options.count("json") != 0) {
    fmt::print("{}\n", sweep::to_json(store.plan(), trials).dump());
  } else if (options.count("csv") != 0) {
    fmt::print("{}", sweep::csv(store.plan(), trials));
  } else {
    fmt::print("{}", printable_lines(sweep::table(store.plan(), trials)));
  }
  return 0;
}

}  // namespace

Command sweep_status_command() {
  return {.name = "sweep status",
          .arguments = "FOLDER",
          .summary = "the table of a sweep's trials",
          .details = "Shows a sweep's trials, the best first, while it runs and afterwards.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("folder", "the sweep's folder", cxxopts::value<std::string>(),
                                      "FOLDER")("csv", "print CSV, a column for each key");
                add_json_option(options);
              },
          .positional = {"folder"},
          .examples = {{"trainer sweep status sweeps/lr", "from any terminal"}},
          .run = show_status};
}

}  // namespace brim::cli
