#include "framework/cli/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/cli/site_defaults.h"
#include "framework/cli/sobol.h"
#include "framework/device/gpus/device_list.h"
#include "framework/recipe/document.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/recipe/text.h"
#include "framework/sweep/search.h"
#include "framework/sweep/table.h"
#include "framework/train/components.h"
#include "framework/train/input_shape.h"

namespace brim::cli {
namespace {

using Strings = std::vector<std::string>;
using sweep::Plan;
using sweep::Settings;
using sweep::SweepConfig;
using sweep::Trial;

constexpr int64_t kUsualTrials = 32;

/// Where the trials' recipes come from.
struct Source {
  std::string recipe;
  recipe::LayerOptions layers;

  /// With the settings on top; [sweep] is taken out into `config` where that is wanted.
  train::JobConfig job(const Settings& settings, SweepConfig* config = nullptr) const {
    recipe::LayerOptions own = layers;
    own.varied = settings;
    recipe::Value document = recipe::load(recipe, own);
    SweepConfig section = sweep::take_sweep(document);
    if (config != nullptr) *config = std::move(section);
    return train::read_job(document);
  }
};

Source source_of(const cxxopts::ParseResult& options) {
  Source source{.recipe = required_option(options, "sweep", "recipe"),
                .layers = {.trusts_library = options.count("trust-library") != 0,
                           .defaults = site_defaults()}};
  if (options.count("config") != 0) {
    for (const auto& path : options["config"].as<Strings>())
      source.layers.configs.emplace_back(path);
  }
  if (options.count("set") != 0) source.layers.sets = options["set"].as<Strings>();
  if (options.count("devices") != 0) {
    source.layers.sets.push_back("device.select=" +
                                 recipe::toml_string(options["devices"].as<std::string>()));
  }
  return source;
}

/// What the options say over the section.
void override(const cxxopts::ParseResult& options, SweepConfig& config) {
  const auto integer = [&](const char* name, int64_t low, int64_t high, auto& value) {
    if (options.count(name) != 0) value = integer_option(options, name, low, high);
  };
  if (options.count("vary") != 0) config.vary = options["vary"].as<Strings>();
  if (options.count("search") != 0) {
    const auto word = options["search"].as<std::string>();
    const auto found = std::ranges::find(sweep::kSearchWords, word);
    if (found == sweep::kSearchWords.end()) {
      throw UsageError("--search: expected grid, random or sobol, found '{}'", word);
    }
    config.search = static_cast<sweep::Search>(found - sweep::kSearchWords.begin());
  }
  if (options.count("asha") != 0) config.asha = true;
  integer("trials", 1, sweep::kMaxTrials, config.trials);
  integer("seed", 0, INT64_MAX, config.seed);
  integer("min-epochs", 1, 1 << 30, config.min_epochs);
  integer("reduction", 2, 100, config.reduction);
  integer("per-device", 1, 256, config.per_device);
  integer("devices-per-trial", 1, 256, config.devices_per_trial);
  integer("keep-free", 0, 1024, config.keep_free);
}

/// Throws Error(kRecipe) where it is not known before the run tunes its batch.
optim::RunLength length_of(const train::JobConfig& job, int64_t samples) {
  if (job.batch.global) return train::run_length(job, samples);
  throw Error(Exit::kRecipe,
              "[batch] global = \"auto\": with --asha the length of a trial must be known; give a "
              "number");
}

/// Epochs at whose end trials pause: the fewest, then `reduction` times as many each.
std::vector<int64_t> rungs_of(const SweepConfig& config, const train::JobConfig& job,
                              int64_t samples) {
  if (!config.asha) return {};
  const optim::RunLength length = length_of(job, samples);
  if (!job.checkpoint.enabled) {
    throw Error(Exit::kRecipe,
                "[checkpoint] enabled = false: trials that pause continue from checkpoints; "
                "enable them, or leave out --asha");
  }
  const int64_t every = std::max<int64_t>(1, job.eval.every_epochs);
  const int64_t fewest = config.min_epochs.value_or(every);
  if (fewest % every != 0) {
    throw Error(Exit::kRecipe,
                "--min-epochs {}: expected a multiple of [eval] every_epochs = {}, so that a rung "
                "ends with an evaluation of the run's own",
                fewest, every);
  }
  std::vector<int64_t> rungs;
  for (int64_t epochs = fewest; epochs * length.steps_per_epoch < length.steps;
       epochs *= config.reduction) {
    rungs.push_back(epochs);
  }
  if (rungs.empty()) {
    throw Error(Exit::kRecipe,
                "--asha: trials of {} steps are over before the first rung, which ends after {} "
                "epochs of {}; give a smaller --min-epochs, train longer, or leave out --asha",
                length.steps, fewest, length.steps_per_epoch);
  }
  return rungs;
}

/// Throws Error(kRecipe) for a key that would move the rungs.
void check_key(const Plan& plan, const std::string& key) {
  const bool moves_rungs = key == "train.epochs" || key == "train.steps" ||
                           key == "schedule.steps" || key.starts_with("eval.") ||
                           key.starts_with("checkpoint.");
  if (plan.rungs.empty() || !moves_rungs) return;
  throw Error(Exit::kRecipe,
              "{}: with --asha all trials have the same rungs; leave out one of the two", key);
}

/// A trial of these settings. `samples` is the number of training samples.
Trial trial_of(const Source& source, const Plan& plan, const Settings& settings, int64_t samples) {
  for (const std::string& setting : settings) {
    check_key(plan, sweep::key_of(setting));
  }
  train::JobConfig job = source.job(settings);
  Trial trial{.settings = settings, .recipe = recipe::print(job)};
  if (plan.rungs.empty()) return trial;
  const bool has_own_data = std::ranges::any_of(
      settings, [](const std::string& setting) { return setting.starts_with("data."); });
  if (has_own_data) samples = job.data.open_train()->size();
  const optim::RunLength length = length_of(job, samples);
  trial.steps = length.steps;
  trial.steps_per_epoch = length.steps_per_epoch;
  trial.schedule_steps = std::max(length.steps, job.schedule.steps.value_or(0));
  return trial;
}

std::vector<Settings> settings_of(const Plan& plan, const std::vector<sweep::Parameter>& space,
                                  int64_t count, const std::set<Settings>& taken) {
  const sweep::Points points = plan.search == sweep::Search::kSobol
                                   ? sobol_points(plan.seed, space.size())
                                   : sweep::random_points(plan.seed, space.size());
  return sweep::draw(space, points, count, taken);
}

/// What lies in that folder came with the values.
void place(recipe::Value& value, const std::filesystem::path& folder) {
  value.folder = folder;
  if (auto* table = std::get_if<recipe::Table>(&value.data)) {
    for (auto& [name, child] : table->entries) place(child, folder);
  }
}

recipe::Value printed(train::JobConfig& job) {
  return recipe::parse(recipe::print(job), "the recipe");
}

void plan_devices(const SweepConfig& config, const train::JobConfig& job, Plan& plan) {
  const device::DeviceList list = device::parse_device_list(job.device.select);
  const bool is_cpu = list.kind == device::DeviceList::Kind::kCpu;
  plan.devices = is_cpu ? "cpu" : job.device.select;
  plan.per_device = config.per_device;
  plan.devices_per_trial = config.devices_per_trial.value_or(is_cpu ? list.ranks : 1);
  plan.keep_free = config.keep_free;
  plan.idle_free_memory = job.device.idle_free_memory;
  plan.idle_utilisation = job.device.idle_utilisation;
}

void require_evaluations(const train::JobConfig& job) {
  if (job.eval.enabled) return;
  throw Error(Exit::kRecipe, "[eval] enabled = false: a sweep compares evaluations; enable them");
}

}  // namespace

PlannedSweep plan_sweep(const cxxopts::ParseResult& options) {
  Source source = source_of(options);
  PlannedSweep planned;
  planned.job = source.job({}, &planned.config);
  SweepConfig& config = planned.config;
  override(options, config);
  if (options.count("vary") == 0) source.layers.varied_by = "vary";  // of [sweep]
  if (config.vary.empty()) {
    throw UsageError(
        "--vary is missing: which keys are to take which values, as in --vary "
        "optimizer.learning_rate=1e-3..1e-1:log");
  }
  train::JobConfig& job = planned.job;
  require_evaluations(job);
  const auto data = job.data.open_train();
  if (job.data.open_eval() == nullptr) {
    throw Error(Exit::kRecipe, "[data.eval] is missing: a sweep compares evaluations");
  }
  const train::BestBy best_by =
      train::build_task(job.train, train::input_shape(*data, job.data))->best_by();
  Plan& plan = planned.plan;
  plan.name = job.run.name;
  plan.vary = config.vary;
  plan.seed = config.seed;
  plan.metric = best_by.metric;
  plan.is_lower_better = best_by.is_lower;
  plan.rungs = rungs_of(config, job, data->size());
  plan.reduction = config.reduction;
  plan_devices(config, job, plan);

  const std::vector<sweep::Parameter> space = sweep::parse_space(plan.vary, printed(job));
  const bool is_grid = std::ranges::none_of(space, &sweep::Parameter::is_range) && !config.trials;
  plan.search = config.search.value_or(is_grid ? sweep::Search::kGrid : sweep::Search::kRandom);
  if (plan.search == sweep::Search::kGrid && config.trials) {
    throw UsageError("--trials does not go with --search grid, which takes every combination");
  }
  std::vector<Settings> all =
      plan.search == sweep::Search::kGrid
          ? sweep::grid(space)
          : settings_of(plan, space, config.trials.value_or(kUsualTrials), {});
  if (plan.search == sweep::Search::kGrid && !plan.rungs.empty()) {
    all = sweep::shuffled(all, plan.seed);
  }
  for (const Settings& settings : all) {
    planned.trials.push_back(trial_of(source, plan, settings, data->size()));
  }
  return planned;
}

std::vector<Trial> plan_more(const Plan& plan, const std::filesystem::path& base,
                             const std::vector<Trial>& trials, int64_t count,
                             const std::vector<std::string>& settings, bool trusts_library) {
  Source source{
      .recipe = base.string(),
      .layers = {.is_of_run = true, .trusts_library = trusts_library, .varied_by = "--set"}};
  train::JobConfig job = source.job({});
  const int64_t samples = plan.rungs.empty() ? 0 : job.data.open_train()->size();
  std::vector<Trial> added;
  if (!settings.empty()) {
    require_evaluations(source.job(settings));
    added.push_back(trial_of(source, plan, settings, samples));
  }
  if (count == 0) return added;
  source.layers.varied_by = "vary";
  std::set<Settings> taken;
  for (const Trial& trial : trials) taken.insert(trial.settings);
  const auto space = sweep::parse_space(plan.vary, printed(job));
  for (const Settings& drawn : settings_of(plan, space, count, taken)) {
    added.push_back(trial_of(source, plan, drawn, samples));
  }
  return added;
}

void check_trial(const Trial& trial, const std::filesystem::path& folder, bool trusts_library) {
  recipe::Value document =
      recipe::parse(trial.recipe, fmt::format("the recipe of trial {}", trial.id),
                    trusts_library ? recipe::Author::kUser : recipe::Author::kRun);
  place(document, std::filesystem::absolute(folder));
  recipe::require_own_command(document, "telemetry", "exec");
  train::read_job(document);
}

}  // namespace brim::cli
