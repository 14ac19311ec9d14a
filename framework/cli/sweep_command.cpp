// trainer sweep RECIPE: many runs of a recipe with different settings, placed on the devices that
// are free; and what another terminal does with them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/cli/bench_options.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/sweep_cluster.h"
#include "framework/cli/sweep_plan.h"
#include "framework/recipe/read.h"
#include "framework/sweep/page.h"
#include "framework/sweep/runner.h"
#include "framework/sweep/store.h"
#include "framework/sweep/table.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;
using sweep::Store;
using sweep::Trial;

constexpr const char* kTableFile = "trials.csv";
constexpr const char* kPageFile = "sweep.html";

/// Who runs the trials: this process, or the jobs of a cluster.
bool is_for_cluster(const cxxopts::ParseResult& options) {
  const bool is_slurm = options.count("slurm") != 0;
  const bool is_kubernetes = options.count("kubernetes") != 0;
  if (is_slurm && is_kubernetes) {
    throw UsageError("--slurm does not go with --kubernetes; leave one out");
  }
  return is_slurm || is_kubernetes;
}

void show_trials(const Store& store, const std::vector<Trial>& trials, bool wants_json) {
  fmt::print("{}", wants_json ? sweep::to_json(store.plan(), trials).dump() + "\n"
                              : printable_lines(sweep::table(store.plan(), trials)));
  std::fflush(stdout);
}

/// Whether --resume will ask for --trust-library: trials differ in values, those that were added
/// last in more.
bool needs_trust(Store& store) {
  const std::vector<Trial> trials = store.trials();
  if (trials.empty()) return false;
  try {
    check_trial(trials.front(), store.folder(), /*trusts_library=*/false);
    check_trial(trials.back(), store.folder(), /*trusts_library=*/false);
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// Runs what is left, and leaves the table and the page in the folder. Without devices a cluster
/// runs it.
int run_trials(Store& store, std::optional<sweep::Devices>& devices, bool trusts_library,
               const cxxopts::ParseResult& options) {
  const bool wants_json = options.count("json") != 0;
  if (!devices) {
    if (options.count("slurm") != 0) {
      submit_to_slurm(store, options["slurm"].as<std::string>(), trusts_library);
    } else {
      write_kubernetes_job(store, trusts_library);
    }
    if (wants_json) show_trials(store, store.trials(), wants_json);
    return 0;
  }
  const auto joined = store.join();
  const sweep::Trust trust{.is_given = trusts_library,
                           .is_needed = trusts_library && needs_trust(store)};
  const Exit status = sweep::Runner(store, *devices, trust).run();
  std::vector<Trial> trials = store.trials();
  store.look_at_runs(trials);
  write_file(store.folder() / kTableFile, sweep::csv(store.plan(), trials));
  write_file(store.folder() / kPageFile, sweep::make_page(store, trials, timestamp()));
  show_trials(store, trials, wants_json);
  return static_cast<int>(status);
}

int resume(const cxxopts::ParseResult& options) {
  constexpr std::array<std::string_view, 5> kAllowed = {"resume", "json", "trust-library", "slurm",
                                                        "kubernetes"};
  for (const cxxopts::KeyValue& given : options.arguments()) {
    if (std::ranges::find(kAllowed, given.key()) != kAllowed.end()) continue;
    throw UsageError(
        "--{} does not go with --resume, which continues a sweep as it was begun; "
        "leave one out",
        given.key());
  }
  const bool is_remote = is_for_cluster(options);
  const fs::path folder = options["resume"].as<std::string>();
  Store store(folder);
  const bool trusts_library = options.count("trust-library") != 0;
  for (const Trial& trial : store.trials()) {
    if (sweep::is_unfinished(trial)) check_trial(trial, folder, trusts_library);
  }
  std::optional<sweep::Devices> devices;
  if (!is_remote) devices.emplace(store.plan());
  return run_trials(store, devices, trusts_library, options);
}

int sweep_recipe(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  require_no_launcher("sweep");
  if (options.count("resume") != 0) return resume(options);
  const bool is_remote = is_for_cluster(options);
  PlannedSweep planned = plan_sweep(options);
  std::optional<sweep::Devices> devices;
  if (!is_remote) devices.emplace(planned.plan);
  const fs::path folder = options.count("output") != 0
                              ? fs::path(options["output"].as<std::string>())
                              : fs::path("sweeps") / planned.plan.name;
  Store::create(folder, planned.plan, recipe::print(planned.job), planned.trials);
  log::info("{} of {} in {}", format_plural(static_cast<int64_t>(planned.trials.size()), "trial"),
            planned.plan.name, folder.string());
  Store store(folder);
  // The recipe is the user's own, or one that they trust.
  return run_trials(store, devices, /*trusts_library=*/true, options);
}

}  // namespace

Command sweep_command() {
  return {
      .name = "sweep",
      .arguments = "RECIPE",
      .summary = "many trials of a recipe, on the devices that are free",
      .details =
          "Runs a recipe again and again with other values of some keys, several trials at the "
          "same time where there is room, and says which is best. A sweep that was stopped or "
          "killed continues with --resume; while it runs, that has one more process work on it.",
      .add_options =
          [](cxxopts::Options& options) {
            using cxxopts::value;
            using Strings = std::vector<std::string>;
            add_job_options(options);
            options.add_options()(
                "vary",
                "a key and its values, as in model.name=resnet18,resnet34, or a range to draw "
                "from, as in optimizer.learning_rate=1e-3..1e-1:log; may be repeated",
                value<Strings>(), "KEY=VALUES")(
                "trials", "how many trials of a random or Sobol search (default: 32)",
                value<int64_t>(), "N")("search",
                                       "grid (all combinations), random or sobol; without it, a "
                                       "grid of lists where --trials is not given, else random",
                                       value<std::string>(), "grid|random|sobol")(
                "seed", "of the search", value<int64_t>(), "N")(
                "asha", "stop trials early that are not among the best (successive halving)")(
                "min-epochs",
                "epochs of every trial with --asha; without it, to the first evaluation",
                value<int64_t>(),
                "N")("reduction", "with --asha, one of so many trials continues (default: 3)",
                     value<int64_t>(),
                     "N")("per-device", "trials at the same time on one device (default: 1)",
                          value<int64_t>(), "N")("devices-per-trial",
                                                 "devices of one data-parallel trial (default: 1)",
                                                 value<int64_t>(), "N")(
                "keep-free", "idle GPUs to leave to others", value<int64_t>(), "N")(
                "output", "the sweep's folder; without it, sweeps/<name of the run>",
                value<std::string>(),
                "DIR")("resume", "continue the sweep in this folder, or help it along",
                       value<std::string>(), "DIR")(
                "slurm",
                "submit the trials as a job array, with further options of sbatch as in "
                "--slurm='--array=1-8 --time=4:00:00'",
                value<std::string>()->implicit_value(""), "[=OPTIONS]")(
                "kubernetes", "write a file for an Indexed Job of Kubernetes that runs the trials");
            add_json_option(options);
          },
      .positional = {"recipe"},
      .examples = {{"trainer sweep digits --vary optimizer.learning_rate=1e-3..1e-1:log",
                    "32 learning rates, into sweeps/digits"},
                   {"trainer sweep digits --vary batch.global=32,64 --output sweeps/batch",
                    "a grid of two"},
                   {"trainer sweep --resume sweeps/lr", "continues it after a stop or a crash"},
                   {"trainer sweep --resume sweeps/lr --slurm", "the same on many machines"}},
      .run = sweep_recipe};
}

}  // namespace brim::cli
