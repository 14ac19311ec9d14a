// trainer plan: which strategy, micro-batch and recompute a recipe's step is best taken with, on
// the devices at hand or on others; trains nothing.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/connected_rank.h"
#include "framework/cli/options.h"
#include "framework/device/memory/memory.h"
#include "framework/plan/assumption.h"
#include "framework/train/job.h"
#include "framework/train/planning/planner.h"

namespace brim::cli {
namespace {

constexpr size_t kRows = 20;

void print(const train::Plan& plan, bool as_json) {
  if (as_json) {
    fmt::print("{}\n", train::to_json(plan).dump());
    return;
  }
  fmt::print("{}", plan::table(plan.ranked, kRows));
  fmt::print("times: {}\n", plan.basis);
  if (plan.has_statistics) {
    fmt::print("batch norms see one micro-batch at a time: its size is part of what is learned\n");
  }
  fmt::print("{}\n\n{}", plan::why(plan.ranked), plan::recipe_lines(plan.ranked.front()));
}

int plan_assumed(train::JobConfig job, const std::string& assumed, bool as_json) {
  const plan::Assumption assumption = plan::read_assumption(assumed);
  const NothingToSave while_planning;
  const auto memory = device::memory_of(c10::kCPU, device::DeviceConfig{});
  print(train::make_assumed_plan(job, assumption, *memory), as_json);
  return 0;
}

int plan(const cxxopts::ParseResult& parsed, std::span<char* const> argv) {
  const bool as_json = parsed.count("json") != 0;
  train::JobConfig job = train::read_job(load_document(parsed));
  if (parsed.count("assume") != 0) {
    if (parsed.count("devices") != 0) {
      throw UsageError("--assume is for devices that are not here: leave out --devices");
    }
    return plan_assumed(std::move(job), parsed["assume"].as<std::string>(), as_json);
  }
  ConnectedRank rank;
  if (const auto status = connect_ranks(job, argv.subspan(1), rank)) return *status;
  const train::Plan found = train::make_plan(job, rank.here.device, rank.group, *rank.memory);
  if (rank.group->is_main()) print(found, as_json);
  rank.group->finish();
  return 0;
}

}  // namespace

Command plan_command() {
  return {
      .name = "plan",
      .arguments = "RECIPE",
      .summary = "the strategy, micro-batch and recompute that fit and are fastest",
      .details =
          "Predicts memory and time of a step for each strategy (ddp, zero1, fsdp, fsdp with "
          "shards, stages), micro-batch and recompute, and ranks what fits. Memory is counted from "
          "the "
          "model's shapes; times are measured by short probes, or with --assume taken from data "
          "sheets. Trains nothing.",
      .add_options =
          [](cxxopts::Options& options) {
            add_job_options(options);
            options.add_options()(
                "assume",
                "plan for devices that are not here: how many, which, and their links, as in "
                "8xH100-80GB,nvlink or 64xA100-40GB,nvlink,hdr",
                cxxopts::value<std::string>(), "NxDEVICE");
            add_json_option(options);
          },
      .positional = {"recipe"},
      .examples = {{"trainer plan text_bytes --devices cpu,cpu", "on two ranks of this machine"},
                   {"trainer plan text_bytes --assume 8xH100-80GB,nvlink",
                    "on eight GPUs that are not here"}},
      .run = plan};
}

}  // namespace brim::cli
