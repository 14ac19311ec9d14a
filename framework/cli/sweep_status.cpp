// trainer sweep status FOLDER: how far the trials of a sweep are, whether or not it runs.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/sweep/asha.h"
#include "framework/sweep/store.h"
#include "framework/sweep/table.h"

namespace brim::cli {
namespace {

constexpr std::chrono::seconds kWatchEvery{2};

bool is_for_people(const cxxopts::ParseResult& options) {
  return options.count("json") == 0 && options.count("csv") == 0;
}

void print_trials(const cxxopts::ParseResult& options, const sweep::Plan& plan,
                  const std::vector<sweep::Trial>& trials) {
  if (options.count("json") != 0) {
    fmt::print("{}\n", sweep::to_json(plan, trials).dump());
  } else if (options.count("csv") != 0) {
    fmt::print("{}", sweep::csv(plan, trials));
  } else {
    fmt::print("{}", printable_lines(sweep::table(plan, trials)));
  }
  std::fflush(stdout);
}

int show_status(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  if (options.count("json") != 0 && options.count("csv") != 0) {
    throw UsageError("--json does not go with --csv; leave one out");
  }
  sweep::Store store(required_option(options, "sweep status", "folder"));
  const bool is_watch = options.count("watch") != 0;
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
  // Clearing the screen takes what was said with it.
  const bool forgets = is_watch && is_terminal && ::isatty(STDERR_FILENO) != 0;
  bool has_said_so = false;
  for (;;) {
    std::vector<sweep::Trial> trials = store.trials();
    store.look_at_runs(trials);
    // Over the table before, on a terminal.
    if (is_watch && is_terminal) fmt::print("\x1b[H\x1b[2J");
    print_trials(options, store.plan(), trials);
    const bool may_change =
        std::ranges::count(trials, sweep::State::kRunning, &sweep::Trial::state) > 0 ||
        sweep::next_trial(store.plan(), trials);
    const bool is_idle =
        may_change && is_for_people(options) && sweep::Store::is_idle(store.folder());
    if (is_idle && (forgets || !has_said_so)) {
      log::info("no process runs this sweep; trainer sweep --resume {} continues it",
                shell_word(store.folder().string()));
    }
    has_said_so = is_idle;
    if (!is_watch || !may_change || std::ferror(stdout) != 0) return 0;
    if (!sleep_unless_stopped(kWatchEvery)) return 0;
  }
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
                                      "FOLDER")(
                    "watch", "again and again, until no trial is left or Ctrl-C")(
                    "csv", "print CSV, a column for each key");
                add_json_option(options);
              },
          .positional = {"folder"},
          .examples = {{"trainer sweep status sweeps/lr", "from any terminal"},
                       {"trainer sweep status sweeps/lr --watch", "a live table"}},
          .run = show_status};
}

}  // namespace brim::cli
