// trainer train R: reads the recipe, meets the other ranks where there are any, prepares
// everything that can fail early, trains.

#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/self_launch.h"
#include "framework/cli/site_defaults.h"
#include "framework/data/sources/image_dataset.h"
#include "framework/data/transfer/prefetcher.h"
#include "framework/device/choice.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/doctor/verdict.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/telemetry/run_record.h"
#include "framework/text/tokenizer_files.h"
#include "framework/train/components.h"
#include "framework/train/input_shape.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/planning/plan_record.h"
#include "framework/train/planning/planner.h"
#include "framework/train/run/job_record.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/state.h"
#include "framework/train/stage_plan.h"
#include "framework/train/trainer.h"
#include "framework/train/tuning/batch_tuner.h"

namespace brim::cli {
namespace {

/// Every rank must have the same recipe, data, …; the first line that differs is named.
void require_same(distributed::Group& group, const std::string& own, std::string_view what) {
  const std::string check = fmt::format("the check that every rank has the same {}", what);
  const std::string first = group.broadcast(own, check);
  group.all_or_none(check, [&] {
    if (own == first) return;
    size_t at = 0;
    while (at < own.size() && at < first.size() && own[at] == first[at]) ++at;
    const auto line = [at](const std::string& text) {
      const size_t start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      return text.substr(start, text.find('\n', at) - start);
    };
    throw Error(Exit::kDistributed, "rank {} has another {} than rank 0: \"{}\" there, \"{}\" here",
                group.rank(), what, line(first), line(own));
  });
}

/// What ranks would go wrong by where their files differ, such as a copy that is not complete.
std::string text_of_data(const train::TrainingComponents& components) {
  const int64_t eval_size = components.data.eval ? components.data.eval->size() : 0;
  return fmt::format("{} training samples\n{} evaluation samples\n{}\nclasses: {}",
                     format_count(components.data.train->size()), format_count(eval_size),
                     train::text_of(components.model.input),
                     fmt::join(train::class_names(*components.data.train), ", "));
}

/// Rank 0 chooses, and holds the folder's lock; the others go along.
train::RunFolder agree_on_folder(distributed::Group& group, const train::RunFolderOptions& where) {
  train::RunFolder folder;
  nlohmann::json choice;
  group.all_or_none("the choice of the run's folder", [&] {
    if (!group.is_main()) return;
    folder = train::choose_run_folder(where);
    choice = {folder.path.string(), folder.checkpoint ? folder.checkpoint->string() : "",
              folder.numbered};
  });
  choice = nlohmann::json::parse(group.broadcast(choice.dump(), "the choice of the run's folder"));
  const auto checkpoint = choice[1].get<std::string>();
  folder.path = choice[0].get<std::string>();
  if (!checkpoint.empty()) folder.checkpoint = checkpoint;
  folder.numbered = choice[2].get<std::string>();
  return folder;
}

/// What slowed the run down, if anything. A verdict that can't be had is no failure of the run.
void say_verdict(const std::filesystem::path& run) {
  try {
    for (const std::string& sentence : doctor::conclude(run)) log::info("verdict: {}", sentence);
  } catch (const Error& error) {
    log::warning("no verdict on this run: {}", error.what());
  }
}

/// What run.json says that the run computes with.
std::map<std::string, std::string> libraries(c10::Device device) {
  std::map<std::string, std::string> versions;
  if (device.is_cuda()) versions = device::cuda().backend->libraries();
  versions["libtorch"] = TORCH_VERSION;
  return versions;
}

/// What can be told of the data without reading samples. Bad ones that training would skip are
/// warned of.
void check_files(const train::JobConfig& job, const train::TrainingComponents& components) {
  for (const data::Dataset* data : {components.data.train.get(), components.data.eval.get()}) {
    if (data == nullptr) continue;
    try {
      data->check_files();
    } catch (const Error& error) {
      if (!job.data.skip_bad || error.status() != Exit::kData) throw;
      log::warning("{}", error.what());
    }
  }
}

/// The data's tokenizer, so that the run's model needs no data to continue text.
void keep_tokenizer(const train::JobConfig& job, const train::RunFolder& folder) {
  const std::filesystem::path from = job.data.source->tokenizer_folder();
  if (from.empty() || !text::has_tokenizer(from)) return;
  try {
    text::copy_tokenizer(from, folder.tokenizer());
  } catch (const Error& error) {
    if (error.status() != Exit::kData) throw;
    log::warning("the run keeps no tokenizer: {}", error.what());
  }
}

/// For batches under way, of the size that the recipe gives, and for what the data keep in memory.
void keep_room_for_loading(const train::JobConfig& job, const train::TrainingComponents& components,
                           device::Memory& memory) {
  const int64_t world = components.model.data_world();
  const int64_t global = std::min(*job.batch.global, components.data.train->size());
  const int64_t micro = std::min(job.batch.micro_or_all(), (global + world - 1) / world);
  memory.keep_outside(
      memory.outside_bytes() +
      train::prefetch_buffer_bytes(job.data, components.data.train->sample_bytes(), micro) +
      job.data.source->cache_bytes());
}

/// The strategy that "auto" stands for: as the run's earlier part chose on as many ranks, or a new
/// choice. Returns run.json's "plan"; null where the recipe names a strategy.
nlohmann::json settle_strategy(const std::shared_ptr<distributed::Group>& group,
                               train::JobConfig& job, c10::Device device,
                               const train::RunFolder& folder, device::Memory& memory) {
  if (job.distributed.strategy != distributed::StrategyKind::kAuto) return nullptr;
  nlohmann::json plan;
  if (group->is_main() && folder.checkpoint) plan = train::read_plan(folder, group->world());
  plan = nlohmann::json::parse(group->broadcast(plan.dump(), "the run's strategy"));
  const bool is_kept = !plan.is_null();
  if (is_kept) {
    train::take_choice(plan, job);
  } else {
    plan = train::choose_strategy(job, device, group, memory);
  }
  log::info("strategy: {}{}", plan.value("why", std::string()),
            is_kept ? ", as this run chose" : "");
  return plan;
}

int train_with(const std::shared_ptr<distributed::Group>& group, train::JobConfig& job,
               c10::Device device, const train::RunFolderOptions& where,
               const std::optional<train::ProfileSteps>& profile,
               std::vector<std::string> command) {
  std::optional<NothingToSave> before_training(std::in_place);
  const bool is_dry_run = where.is_dry_run;
  require_same(*group, recipe::print(job), "recipe");
  group->all_or_none("the preparation of all ranks", [&] {
    const data::ImageOptions* images = job.data.source->image_options();
    if (images != nullptr && images->on_gpu) data::jpeg_decoder(device);  // for what it throws
  });
  train::RunFolder folder = agree_on_folder(*group, where);
  const auto memory = device::memory_of(device, job.device, group->ranks().local_world);
  if (!job.batch.global && folder.checkpoint) {
    job.batch.global = train::global_batch_of(*folder.checkpoint);
  }
  if (!job.batch.global && is_dry_run) {
    job.batch.global = job.optimizer.base_batch;
    log::info("batch.global is tuned when training starts; the plan is that of base_batch");
  }
  const nlohmann::json plan = settle_strategy(group, job, device, folder, *memory);
  std::optional<train::Tuning> tuning;
  if (!job.batch.micro && !is_dry_run) {
    tuning = train::tune_batch(job, device, group, *memory);
    train::take(*tuning, group->world(), job);
    log::info("{}", train::report(*tuning, job, group->world()));
  }
  const train::StagePlan stages = train::plan_stages(job, device, *group, *memory);
  train::TrainingComponents components;
  train::TrainState state;
  group->all_or_none("the preparation of all ranks", [&] {
    const train::Weights weights = is_dry_run          ? train::Weights::kNone
                                   : folder.checkpoint ? train::Weights::kOfCheckpoint
                                                       : train::Weights::kOfRecipe;
    components = train::build_components(job, device, group, weights,
                                         tuning ? nullptr : memory.get(), &stages);
  });
  require_same(*group, text_of_data(components), "dataset");
  group->all_or_none("the preparation of all ranks", [&] {
    for (const std::string& line : train::describe(job, components)) log::info("{}", line);
    if (is_dry_run && group->is_main()) check_files(job, components);
    if (folder.checkpoint && !is_dry_run) {
      state = train::resume(*folder.checkpoint, job, components);
      memory->release_cached();
      memory->forget_outside_peak();
    }
    if (folder.is_branch() && state.step >= components.total_steps && !state.evaluation_due &&
        !is_dry_run) {
      throw Error(
          Exit::kRecipe,
          "--resume {}: is at step {}, and this recipe ends at step {}: there is nothing to "
          "train in a new folder. Raise train.epochs or train.steps",
          folder.checkpoint->string(), state.step, components.total_steps);
    }
    if (is_dry_run || !group->is_main()) return;
    nlohmann::json record = telemetry::run_record({.command = std::move(command),
                                                   .libraries = libraries(device),
                                                   .device = device.str(),
                                                   .seed = job.run.seed,
                                                   .ranks = group->world(),
                                                   .launch = group->ranks().launch});
    record["job"] = train::job_record(components.model, job.batch.micro_or_all());
    record["after_step"] = state.step;
    if (tuning) record["tuning"] = train::to_json(*tuning);
    if (!plan.is_null()) record["plan"] = plan;
    folder = train::create_run_folder(folder, recipe::print(job), std::move(record));
    keep_tokenizer(job, folder);
  });
  folder.path = group->broadcast(folder.path.string(), "the name of the run's folder");
  if (is_dry_run) {
    group->finish();
    return 0;
  }
  if (!tuning && device.is_cpu()) keep_room_for_loading(job, components, *memory);
  train::Trainer trainer(job, std::move(components), state, folder, *memory);
  if (!tuning) trainer.leave_room_for_checkpoint();
  if (profile) trainer.profile(*profile);
  before_training.reset();
  const Exit status = trainer.run();
  if (group->is_main()) {
    train::report_prediction(folder, job, group->world());
    say_verdict(folder.path);
  }
  if (status == Exit::kStopped) {  // not held by threads that still wait for data
    std::fflush(nullptr);
    std::_Exit(static_cast<int>(status));
  }
  return static_cast<int>(status);
}

int train(const cxxopts::ParseResult& parsed, std::span<char* const> argv) {
  std::optional<train::ProfileSteps> profile;
  if (parsed.count("profile") != 0) {
    profile = train::read_profile_steps(parsed["profile"].as<std::string>());
  }
  if (distributed::read_ranks().rank > 0) log::write_only_warnings();
  const recipe::Value document = load_document(parsed);
  recipe::require_own_command(document, "telemetry", "exec");
  train::JobConfig job = train::read_job(document);
  RankDevice here;
  if (const auto status = start_ranks(job.device, job.run.name, argv.subspan(1), here)) {
    return *status;
  }
  const distributed::Ranks& ranks = here.ranks;
  train::RunFolderOptions where{.run_name = job.run.name,
                                .output = {},
                                .runs = site_runs(),
                                .resume = {},
                                .launch = ranks.launch,
                                .is_restarted = ranks.restarts > 0,
                                .is_dry_run = parsed.count("dry-run") != 0};
  if (parsed.count("output") != 0) where.output = parsed["output"].as<std::string>();
  if (parsed.count("resume") != 0) where.resume = parsed["resume"].as<std::string>();

  const auto group = distributed::Group::connect(ranks, here.device, job.distributed.backend,
                                                 job.distributed.limit(), job.distributed.compares);
  // What ends this rank is what the others should say.
  try {
    return train_with(group, job, here.device, where, profile, {argv.begin(), argv.end()});
  } catch (const std::exception& thrown) {
    const Error error = device::as_error(thrown);
    group->report_failure(static_cast<int>(error.status()), error.what());
    throw;
  }
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .arguments = "RECIPE",
      .summary = "train the model that a recipe describes",
      .details =
          "Trains the model that a recipe describes, and keeps metrics and checkpoints in "
          "the run's folder. `trainer --recipe RECIPE` does the same.",
      .add_options =
          [](cxxopts::Options& options) {
            add_job_options(options);
            options.add_options()("output", "the run's folder; without it, runs/<name of the run>",
                                  cxxopts::value<std::string>(), "DIR")(
                "resume", "auto, or the folder of a run or checkpoint to resume from",
                cxxopts::value<std::string>(), "auto|PATH")(
                "profile",
                "a trace of these steps for Perfetto and TensorBoard, into the run's folder",
                cxxopts::value<std::string>(), "steps=A..B")(
                "dry-run",
                "check recipe, device, model and that the data are there, some image files' sizes "
                "too, without reading samples; show the plan, train nothing");
          },
      .positional = {"recipe"},
      .examples = {{"trainer train digits", "a bundled recipe, into runs/digits"},
                   {"trainer train digits --set train.epochs=2 --output runs/short",
                    "with one key changed"},
                   {"trainer train digits --resume auto", "from its newest checkpoint, if any"},
                   {"trainer train digits --dry-run", "only checks what it would do"}},
      .run = train};
}

}  // namespace brim::cli
