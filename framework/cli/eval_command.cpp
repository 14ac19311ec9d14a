// trainer eval: the evaluation of a run's checkpoint, or of a file of weights; trains nothing.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/eval_classes.h"
#include "framework/cli/options.h"
#include "framework/device/choice.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/components.h"
#include "framework/train/evaluation.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/run/job_record.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/state.h"

namespace brim::cli {
namespace {

constexpr int64_t kEvalBatch = 64;  // where the recipe would have the batch tuned

int evaluate(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("from") == 0 && parsed.count("recipe") == 0) {
    throw UsageError("no run given; try: trainer eval runs/digits");
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
  train::TrainingComponents components =
      train::build_components(job, device, distributed::Group::alone(),
                              saved ? train::Weights::kOfCheckpoint : train::Weights::kOfRecipe);
  if (components.eval_data == nullptr) {
    throw Error(Exit::kRecipe, "the recipe has no evaluation data: give it some under [data.eval]");
  }
  train::TrainState state;
  if (saved) {
    state = train::load_model(saved->checkpoint, components);
    train::require_same_classes(state, components, saved->checkpoint);
  }
  const int64_t samples = components.eval_data->size();
  const at::Tensor sums =
      train::evaluation_sums(components, train::Inputs(job, components), job.batch.micro_or_all());
  if (stop_requested()) throw Error(Exit::kStopped, "stopped before the last sample: no metrics");
  const at::Tensor on_host = sums.cpu();
  const auto by_class = components.task->by_class(on_host);
  const std::vector<std::string> names = train::class_names(components);
  nlohmann::json json = {{"samples", samples}, {"step", state.step}};
  if (!by_class.empty()) json["classes"] = train::classes_record(by_class, names);
  std::string line = saved ? printable(saved->checkpoint.string()) + ":" : "";
  for (const auto& [name, value] : components.task->metrics(on_host)) {
    json[name] = value;
    line += fmt::format("  {} {}", name, format_number(value));
  }
  fmt::print("{}", parsed.count("json") != 0
                       ? json.dump() + "\n"
                       : fmt::format("{}  ({})\n{}", line, format_plural(samples, "sample"),
                                     hardest_classes(by_class, names)));
  return 0;
}

}  // namespace

Command eval_command() {
  return {.name = "eval",
          .arguments = "RUN|CHECKPOINT",
          .summary = "loss and accuracy of a run's checkpoint",
          .details =
              "Evaluates a run's best checkpoint, any other one, or, without RUN, the "
              "weights that the recipe's model.pretrained names. Of images it also shows the "
              "classes with most mistakes; --json has every class, and what its samples were "
              "taken for.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("from", "the folder of a run or of a checkpoint",
                                      cxxopts::value<std::string>(), "RUN|CHECKPOINT");
                add_job_options(options);
                add_json_option(options);
              },
          .positional = {"from"},
          .examples = {{"trainer eval runs/digits", "its best checkpoint on its evaluation data"},
                       {"trainer eval runs/digits --set data.eval.path=other", "on other data"}},
          .run = evaluate};
}

}  // namespace brim::cli
