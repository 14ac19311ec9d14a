#include "framework/cli/doctor_fix.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/cli/bench_options.h"
#include "framework/cli/doctor_prove.h"
#include "framework/device/gpus/device_list.h"
#include "framework/doctor/diagnosis.h"
#include "framework/doctor/facts.h"
#include "framework/doctor/thresholds.h"
#include "framework/recipe/read.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

using doctor::kUsualEverySteps;  // a line of metrics, so that short runs have some

/// Short runs start their ranks themselves: they need the run's list of devices.
void require_same_ranks(const experiment::RunData& run, const train::JobConfig& job,
                        const doctor::RunFacts& facts) {
  const int64_t listed = device::parse_device_list(job.device.select).ranks;
  const int64_t ranks = facts.ranks.value_or(listed);
  if (ranks == listed) return;
  throw Error(Exit::kRecipe,
              "{}: the run had {} ranks by a launcher, and its device.select = \"{}\" names {}; "
              "--fix starts the ranks that device.select names: try a run with --devices",
              run.folder.string(), ranks, job.device.select, listed);
}

}  // namespace

void add_fix_options(cxxopts::Options& options) {
  using cxxopts::value;
  options.add_options()("fix",
                        "try what is proposed in short runs of the recipe, in turn with it, and "
                        "keep what is faster; takes some minutes")(
      "apply", "with --fix: write the recipe with what was kept to RUN/fixed.toml")(
      "repeats", "with --fix: runs of each side, each a fresh process",
      value<int64_t>()->default_value("5"), "N")(
      "steps", "with --fix: steps measured in each run; without it, about three seconds' worth",
      value<int64_t>(), "N");
}

doctor::Fix fix_run(const experiment::RunData& run, const cxxopts::ParseResult& options) {
  require_no_launcher("doctor --fix");
  if (run.recipe.empty()) {
    throw Error(Exit::kData, "{}: expected the run's recipe.toml, which --fix runs again",
                run.folder.string());
  }
  const std::filesystem::path recipe = run.folder / "recipe.toml";
  recipe::LayerOptions layers{.is_of_run = true,
                              .trusts_library = options.count("trust-library") != 0};
  train::JobConfig job = train::read_job(recipe::load(recipe.string(), layers));
  const doctor::RunFacts facts = doctor::facts_of(run);
  require_same_ranks(run, job, facts);
  if (const std::string other = other_host(run.record); !other.empty()) {
    log::warning("{}: what is faster here may not be faster there", other);
  }

  doctor::FixPlan plan{.arguments = {"--recipe", recipe.string()},
                       .repeats = repeats_option(options),
                       .steps = steps_option(options)};
  if (plan.steps && *plan.steps < kUsualEverySteps) {
    throw UsageError("--steps: expected {} or more, as many as a line of metrics has, found {}",
                     kUsualEverySteps, *plan.steps);
  }
  if (layers.trusts_library) plan.arguments.emplace_back("--trust-library");
  if (job.telemetry.every_steps > kUsualEverySteps) {
    plan.arguments.insert(plan.arguments.end(),
                          {"--set", fmt::format("telemetry.every_steps={}", kUsualEverySteps)});
  }
  const auto proposals = doctor::proposals_of(doctor::diagnose(facts));
  if (!proposals.empty() && job.batch.global) {
    const int64_t samples = job.data.open_train()->size();
    plan.epoch_steps = (samples + *job.batch.global - 1) / *job.batch.global;
    plan.epoch_s = static_cast<double>(plan.epoch_steps) * (facts.step_s ? facts.step_s->p50 : 0);
  }
  doctor::Fix fix = doctor::fix(proposals, plan);
  if (options.count("apply") != 0 && !fix.kept.empty()) {
    layers.sets = fix.kept;
    train::JobConfig fixed = train::read_job(recipe::load(recipe.string(), layers));
    const std::filesystem::path path = run.folder / "fixed.toml";
    write_file(path, recipe::print(fixed));
    log::info("written to {}; train it with: trainer train {}", path.string(),
              shell_word(path.string()));
  }
  return fix;
}

}  // namespace brim::cli
