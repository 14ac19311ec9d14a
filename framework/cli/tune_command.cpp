// trainer tune: the micro-batch that batch.micro = "auto" would take, and why; trains nothing.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/self_launch.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/job.h"
#include "framework/train/planning/planner.h"
#include "framework/train/tuning/batch_tuner.h"

namespace brim::cli {

namespace {

int tune(const cxxopts::ParseResult& parsed, std::span<char* const> argv) {
  train::JobConfig job = train::read_job(load_document(parsed));
  RankDevice here;
  if (const auto status = start_ranks(job.device, job.run.name, argv.subspan(1), here)) {
    return *status;
  }
  const NothingToSave while_tuning;
  const auto group = distributed::Group::connect(here.ranks, here.device, job.distributed.backend,
                                                 job.distributed.limit());
  const auto memory = device::memory_of(here.device, job.device, group->ranks().local_world);
  if (job.distributed.strategy == distributed::StrategyKind::kAuto) {
    train::choose_strategy(job, here.device, group, *memory);
  }
  const train::Tuning tuning = train::tune_batch(
      job, here.device, group, *memory, {.is_fresh = parsed.count("fresh") != 0, .explains = true});
  train::take(tuning, group->world(), job);
  if (group->is_main()) {
    fmt::print("{}", parsed.count("json") != 0 ? train::to_json(tuning).dump() + "\n"
                                               : train::report(tuning, job, group->world()));
  }
  group->finish();
  return 0;
}

}  // namespace

Command tune_command() {
  return {.name = "tune",
          .arguments = "RECIPE",
          .summary = "the largest micro-batch that fits",
          .details =
              "Finds the micro-batch that batch.micro = \"auto\" would take, shows the "
              "probes and where memory goes, and trains nothing.",
          .add_options =
              [](cxxopts::Options& options) {
                add_job_options(options);
                options.add_options()("fresh", "search again, whatever was found before");
                add_json_option(options);
              },
          .positional = {"recipe"},
          .examples = {{"trainer tune digits --set batch.global=8192", "on this machine"},
                       {"trainer tune digits --set device.memory_gib=0.25", "under a memory cap"}},
          .run = tune};
}

}  // namespace brim::cli
