// trainer tune: the micro-batch that batch.micro = "auto" would take, and why; trains nothing.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "framework/cli/commands.h"
#include "framework/cli/connected_rank.h"
#include "framework/cli/options.h"
#include "framework/train/job.h"
#include "framework/train/planning/planner.h"
#include "framework/train/tuning/batch_tuner.h"

namespace brim::cli {

namespace {

int tune(const cxxopts::ParseResult& parsed, std::span<char* const> argv) {
  train::JobConfig job = train::read_job(load_document(parsed));
  ConnectedRank rank;
  if (const auto status = connect_ranks(job, argv.subspan(1), rank)) return *status;
  const auto& group = rank.group;
  if (job.distributed.strategy == distributed::StrategyKind::kAuto) {
    train::choose_strategy(job, rank.here.device, group, *rank.memory);
  }
  const train::Tuning tuning =
      train::tune_batch(job, rank.here.device, group, *rank.memory,
                        {.is_fresh = parsed.count("fresh") != 0, .explains = true});
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
