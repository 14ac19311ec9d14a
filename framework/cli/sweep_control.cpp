// trainer sweep pause, resume, cancel, add: what another terminal asks of a sweep, which finds it
// in its database within half a second.

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/sweep_plan.h"
#include "framework/sweep/store.h"
#include "framework/sweep/table.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;
using sweep::Request;
using sweep::Store;
using sweep::Trial;

/// Leaves a request for the processes that run the sweep. Throws Error(kResource) without one.
int leave(const fs::path& folder, Request request, const char* done) {
  Store store(folder);
  if (Store::lock_if_idle(folder) != nullptr) {
    throw Error(Exit::kResource,
                "{}: no process runs this sweep; trainer sweep --resume {} "
                "continues it",
                folder.string(), shell_word(folder.string()));
  }
  store.set_request(request);
  log::info("{}: {}", folder.string(), done);
  return 0;
}

int pause(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  return leave(required_option(options, "sweep pause", "folder"), Request::kPause,
               "its trials save their state and stop");
}

int unpause(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  return leave(required_option(options, "sweep resume", "folder"), Request::kRun,
               "its trials continue");
}

int cancel(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const fs::path folder = required_option(options, "sweep cancel", "folder");
  Store store(folder);
  const auto lock = Store::lock_if_idle(folder);
  if (lock == nullptr) {
    store.set_request(Request::kCancel);
  } else {
    std::vector<Trial> trials;
    store.cancel(trials);
  }
  log::info("{}: trials that are not done are cancelled; what they have trained stays",
            folder.string());
  return 0;
}

void require_keys_once(const std::vector<std::string>& settings) {
  std::set<std::string> keys;
  for (const std::string& setting : settings) {
    const std::string key = sweep::key_of(setting);
    if (!keys.insert(key).second) throw UsageError("--set: {} is given twice; leave one out", key);
  }
}

int add(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const fs::path folder = required_option(options, "sweep add", "folder");
  std::vector<std::string> settings;
  if (options.count("set") != 0) settings = options["set"].as<std::vector<std::string>>();
  const int64_t count = integer_option(options, "trials", 0, 10000);
  if (settings.empty() && count == 0) {
    throw UsageError(
        "which trials? Give --trials N for more of the search, or --set for one of "
        "your own");
  }
  require_keys_once(settings);
  Store store(folder);
  std::vector<Trial> known, added;
  do {  // again where another process was faster: a search draws by how many trials there are
    known = store.trials();
    added = plan_more(store.plan(), store.recipe(), known, count, settings,
                      options.count("trust-library") != 0);
  } while (!store.add(added, known.size()));
  const bool is_running = Store::lock_if_idle(folder) == nullptr;
  log::info(
      "{}: {} added{}", folder.string(), format_plural(static_cast<int64_t>(added.size()), "trial"),
      is_running
          ? ""
          : fmt::format("; trainer sweep --resume {} runs them", shell_word(folder.string())));
  return 0;
}

void add_folder(cxxopts::Options& options) {
  options.add_options()("folder", "the sweep's folder", cxxopts::value<std::string>(), "FOLDER");
}

}  // namespace

Command sweep_pause_command() {
  return {.name = "sweep pause",
          .arguments = "FOLDER",
          .summary = "free a sweep's devices for a while",
          .details =
              "Has the trials of a running sweep save their state and stop, until trainer "
              "sweep resume.",
          .add_options = add_folder,
          .positional = {"folder"},
          .examples = {{"trainer sweep pause sweeps/lr", "its process stays and waits"}},
          .run = pause};
}

Command sweep_resume_command() {
  return {.name = "sweep resume",
          .arguments = "FOLDER",
          .summary = "continue a paused sweep",
          .details =
              "Has a paused sweep continue with its trials, from where they stopped. One "
              "without a process is continued by trainer sweep --resume.",
          .add_options = add_folder,
          .positional = {"folder"},
          .examples = {{"trainer sweep resume sweeps/lr", "after trainer sweep pause"}},
          .run = unpause};
}

Command sweep_cancel_command() {
  return {.name = "sweep cancel",
          .arguments = "FOLDER",
          .summary = "end a sweep before its time",
          .details =
              "Ends a sweep: trials under way save their state and stop, no others begin. "
              "Results and checkpoints stay.",
          .add_options = add_folder,
          .positional = {"folder"},
          .examples = {{"trainer sweep cancel sweeps/lr", "keeps what was found"}},
          .run = cancel};
}

Command sweep_add_command() {
  return {.name = "sweep add",
          .arguments = "FOLDER",
          .summary = "more trials for a sweep",
          .details =
              "Adds trials to a sweep, whether or not it runs: the next ones of its search, "
              "or one with settings of your own.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                add_folder(options);
                options.add_options()("trials", "so many that the search draws next",
                                      value<int64_t>()->default_value("0"), "N")(
                    "set", "a key's value in one trial more; may be repeated",
                    value<std::vector<std::string>>(), "KEY=VALUE");
                add_trust_option(options);
              },
          .positional = {"folder"},
          .examples = {{"trainer sweep add sweeps/lr --trials 8", "of the same search"},
                       {"trainer sweep add sweeps/lr --set optimizer.learning_rate=0.05",
                        "one trial of your own"}},
          .run = add};
}

}  // namespace brim::cli
