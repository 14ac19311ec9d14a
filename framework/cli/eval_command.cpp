// trainer eval: the evaluation of a run's checkpoint, or of a file of weights; trains nothing.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/device/choice.h"
#include "framework/device/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/evaluation.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/parts.h"
#include "framework/train/run_folder.h"
#include "framework/train/state.h"

namespace brim::cli {
namespace {

constexpr int64_t kEvalBatch = 64;  // where the recipe would have the batch tuned

cxxopts::Options eval_options() {
  cxxopts::Options options("trainer eval", "Evaluates a run's best checkpoint, or any other one.");
  options.positional_help("RUN|CHECKPOINT");
  add_job_options(options);
  options.add_options()("from",
                        "a run's or a checkpoint's folder; left out: the recipe's "
                        "model.pretrained",
                        cxxopts::value<std::string>(),
                        "RUN|CHECKPOINT")("json", "print JSON")("h,help", "show this help");
  options.parse_positional({"from"});
  return options;
}

}  // namespace

int eval_command(int argc, char** argv) {
  cxxopts::Options options = eval_options();
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  std::optional<train::SavedRun> saved;
  if (parsed.count("from") != 0) saved = train::find_saved(parsed["from"].as<std::string>());
  train::JobConfig job =
      train::read_job(load_document(parsed, saved ? saved->recipe.string() : std::string()));
  if (!saved && job.model.pretrained.empty()) {
    throw Error(Exit::kRecipe,
                "nothing to evaluate: expected the folder of a run or a checkpoint, or a recipe "
                "with model.pretrained");
  }
  if (!job.batch.global) job.batch.global = job.optimizer.base_batch;
  if (!job.batch.micro) job.batch.micro = std::min<int64_t>(*job.batch.global, kEvalBatch);
  const c10::Device device = device::choose_device(job.device);
  const auto memory = device::memory_of(device, job.device);
  train::Parts parts =
      train::build_parts(job, device, distributed::Group::alone(),
                         saved ? train::Weights::kOfCheckpoint : train::Weights::kOfRecipe);
  if (parts.eval_data == nullptr) {
    throw Error(Exit::kRecipe, "the recipe has no evaluation data: give it some under [data.eval]");
  }
  train::TrainState state;
  if (saved) state = train::restore(saved->checkpoint, job, parts);
  const int64_t samples = parts.eval_data->size();
  const at::Tensor sums =
      train::evaluation_sums(parts, train::Inputs(job, parts), job.batch.micro_or_all());
  if (stop_requested()) throw Error(Exit::kStopped, "stopped before the last sample: no figures");
  nlohmann::json json = {{"samples", samples}, {"step", state.step}};
  std::string line = saved ? printable(saved->checkpoint.string()) + ":" : "";
  for (const auto& [name, value] : parts.task->metrics(sums.cpu())) {
    json[name] = value;
    line += fmt::format("  {} {:.4g}", name, std::isnan(value) ? std::abs(value) : value);
  }
  fmt::print("{}\n", parsed.count("json") != 0 ? json.dump()
                                               : fmt::format("{}  ({} samples)", line, samples));
  return 0;
}

}  // namespace brim::cli
