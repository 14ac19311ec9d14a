// trainer --recipe R: reads the recipe, prepares everything that can fail early, trains.

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/recipe/read.h"
#include "framework/telemetry/run_record.h"
#include "framework/train/job.h"
#include "framework/train/parts.h"
#include "framework/train/run_folder.h"
#include "framework/train/trainer.h"

namespace brim::cli {
namespace {

constexpr const char* kOtherCommands =
    "\nOther commands:\n"
    "  trainer data pack|inspect|bench\n"
    "  trainer recipe check|show|schema|reference\n"
    "  trainer version\n";

}  // namespace

int train_command(int argc, char** argv) {
  cxxopts::Options options("trainer", "Trains the model that a recipe describes.");
  add_job_options(options);
  options.add_options()("output", "the run's folder; default: runs/<name of the run>",
                        cxxopts::value<std::string>(),
                        "DIR")("resume", "auto, or the folder of a run or checkpoint to go on from",
                               cxxopts::value<std::string>(), "auto|PATH")(
      "dry-run", "check everything, show the plan, train nothing")("h,help", "show this help");
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}{}", options.help(), kOtherCommands);
    return 0;
  }

  train::JobConfig job = train::read_job(load_document(parsed));
  train::RunFolderOptions where{.run_name = job.run.name, .output = {}, .resume = {}};
  if (parsed.count("output") != 0) where.output = parsed["output"].as<std::string>();
  if (parsed.count("resume") != 0) where.resume = parsed["resume"].as<std::string>();
  const train::RunFolder folder = train::choose_run_folder(where);

  train::Parts parts = train::build_parts(job);
  for (const std::string& line : train::describe(job, parts)) log::info("{}", line);
  if (parsed.count("dry-run") != 0) return 0;

  const train::TrainState state =
      folder.checkpoint ? train::restore(*folder.checkpoint, job, parts) : train::TrainState{};
  train::create_run_folder(folder, recipe::print(job),
                           telemetry::run_record({.command = {argv, argv + argc},
                                                  .libtorch = TORCH_VERSION,
                                                  .device = parts.device.str(),
                                                  .seed = job.run.seed}));
  train::Trainer trainer(job, std::move(parts), state, folder);
  return static_cast<int>(trainer.run());
}

}  // namespace brim::cli
