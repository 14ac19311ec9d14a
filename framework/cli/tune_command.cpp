// trainer tune: the micro-batch that batch.micro = "auto" would take, and why; trains nothing.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/cli/self_launch.h"
#include "framework/device/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/job.h"
#include "framework/train/tuning/batch_tuner.h"

namespace brim::cli {

int tune_command(int argc, char** argv) {
  cxxopts::Options options("trainer tune",
                           "Finds the largest micro-batch of a recipe that fits in memory.");
  add_job_options(options);
  options.add_options()("fresh", "probe anew, whatever was found before")("json", "print JSON")(
      "h,help", "show this help");
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  train::JobConfig job = train::read_job(load_document(parsed));
  Placement here;
  if (const auto status = start_ranks(job.device, {argv, argv + argc}, here)) return *status;
  const NothingToSave while_tuning;
  const auto group = distributed::Group::connect(here.ranks, here.device, job.distributed.backend,
                                                 job.distributed.limit());
  const auto memory = device::memory_of(here.device, job.device, group->ranks().local_world);
  const train::Tuning tuning = train::tune_batch(
      job, here.device, group, *memory, {.is_fresh = parsed.count("fresh") != 0, .explains = true});
  train::take(tuning, group->world(), job);
  if (group->is_first()) {
    fmt::print("{}", parsed.count("json") != 0 ? train::to_json(tuning).dump() + "\n"
                                               : train::report(tuning, job, group->world()));
  }
  group->finish();
  return 0;
}

}  // namespace brim::cli
