// trainer history: the runs of a folder, and where the hours of their devices went.

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/history/table.h"

namespace brim::cli {
namespace {

std::optional<history::GroupBy> read_by(const cxxopts::ParseResult& options) {
  if (options.count("by") == 0) return std::nullopt;
  const auto word = options["by"].as<std::string>();
  const auto by = history::group_by(word);
  if (!by) throw UsageError("--by: expected user, model, host or week, found '{}'", word);
  return by;
}

int show_history(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const auto by = read_by(options);
  if (options.count("output") != 0 && (options.count("json") != 0 || by)) {
    throw UsageError("--output does not go with --json or --by: the page shows every group");
  }
  if (options.count("output") != 0) require_page(options["output"].as<std::string>());
  const std::string folder =
      options.count("folder") != 0 ? options["folder"].as<std::string>() : "runs";
  const int64_t period_s =
      options.count("since") != 0 ? history::read_period(options["since"].as<std::string>()) : 0;
  std::vector<history::PastRun> runs = history::find_runs(folder);
  if (period_s > 0) {
    const int64_t first_s = std::time(nullptr) - period_s;
    std::erase_if(runs, [&](const auto& run) { return run.started_unix_s < first_s; });
  }
  if (options.count("output") != 0) {
    const std::filesystem::path output = options["output"].as<std::string>();
    write_file(output, history::make_page(runs, folder, timestamp()));
    log::info("{} in {}", format_plural(std::ssize(runs), "run"), output.string());
    return 0;
  }
  if (options.count("json") != 0) {
    fmt::print("{}", json_line(history::to_json(runs, by)));
  } else {
    fmt::print("{}", printable_lines(history::table(runs, by)));
  }
  return 0;
}

}  // namespace

Command history_command() {
  return {.name = "history",
          .arguments = "[FOLDER]",
          .summary = "all runs of a folder, and where their device hours went",
          .details =
              "Lists the runs in a folder and below it, newest first: the best metric, speed, "
              "device hours, energy and verdict. Then says what the hours went to, and which "
              "causes took most from computing.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("folder", "where the runs are; without it, runs",
                                      value<std::string>(), "FOLDER")(
                    "since", "runs that began in the last hours, days or weeks: 12h, 7d, 4w",
                    value<std::string>(), "PERIOD")(
                    "by", "a line for each user, model, host or week", value<std::string>(),
                    "WHAT")("output", "writes one HTML page instead", value<std::string>(), "FILE");
                add_json_option(options);
              },
          .positional = {"folder"},
          .examples = {{"trainer history --since 7d", "the week's runs"},
                       {"trainer history runs --by user", "whose hours went where"},
                       {"trainer history runs --output hours.html", "the same as a page"}},
          .run = show_history};
}

}  // namespace brim::cli
