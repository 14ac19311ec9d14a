// trainer eval: the evaluation of a run's checkpoint, or of a file of weights; trains nothing.

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/eval_classes.h"
#include "framework/cli/options.h"
#include "framework/cli/placement.h"
#include "framework/train/evaluation.h"
#include "framework/train/inference/trained_model.h"
#include "framework/train/input_shape.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/run/job_record.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/state.h"

namespace brim::cli {
namespace {

/// A model and the data to evaluate it on.
std::unique_ptr<train::LoadedModel> load(train::JobConfig job,
                                         const std::optional<train::SavedRun>& saved) {
  const auto learned = saved ? train::input_of(saved->checkpoint) : std::nullopt;
  const bool is_known = learned && (!learned->classes.empty() || learned->shape.classes == 0);
  auto eval_data =
      is_known ? job.data.source->open_eval_for(learned->classes) : job.data.source->open_eval();
  if (eval_data == nullptr) {
    throw Error(Exit::kRecipe, "the recipe has no evaluation data: give it some under [data.eval]");
  }
  data::check_samples(*eval_data, "evaluation");
  std::optional<nn::ModelShape> input;
  if (is_known) input = train::input_shape(*eval_data, job.data);
  auto loaded = std::make_unique<train::LoadedModel>(std::move(job), saved, input);
  if (saved && !is_known) {
    train::require_same_classes(loaded->state, *loaded->components.data.train, saved->checkpoint);
  }
  data::check_evaluation(*loaded->components.data.train, eval_data.get());
  loaded->components.data.eval = std::move(eval_data);
  return loaded;
}

int evaluate(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("from") == 0 && parsed.count("recipe") == 0) {
    throw UsageError("no run given; try: trainer eval runs/digits");
  }
  std::optional<train::SavedRun> saved;
  if (parsed.count("from") != 0) saved = train::find_saved(parsed["from"].as<std::string>());
  train::JobConfig job =
      train::read_job(load_document(parsed, saved ? saved->run.recipe().string() : std::string()));
  if (!saved && job.model.pretrained.empty()) {
    throw Error(Exit::kRecipe,
                "nothing to evaluate: expected the folder of a run or a checkpoint, or a recipe "
                "with model.pretrained");
  }
  const auto hold = hold_device(job.device, "eval");
  const auto loaded = load(std::move(job), saved);
  train::TrainingComponents& components = loaded->components;
  const train::Inputs inputs(loaded->job, components.data, components.model);
  train::Evaluator evaluator(components.model, *components.task, components.ema.get(), inputs);
  const NothingToSave while_evaluating;
  const at::Tensor sums = evaluator.sums(loaded->job.batch.micro_or_all());
  if (stop_requested()) throw Error(Exit::kStopped, "stopped before the last sample: no metrics");
  const at::Tensor on_host = sums.cpu();
  const auto by_class = components.task->by_class(on_host);
  // Without those that could not be read, where the task tells them apart.
  int64_t samples = by_class.empty() ? components.data.eval->size() : 0;
  for (const train::ClassResult& result : by_class) samples += result.samples;
  nlohmann::json json = {{"samples", samples}, {"step", loaded->state.step}};
  if (!by_class.empty()) json["classes"] = train::classes_record(by_class, loaded->classes);
  const auto& weights = saved ? saved->checkpoint : loaded->job.model.pretrained;
  std::string line = printable(weights.string()) + ":";
  for (const auto& [name, value] : train::metrics_of(*components.task, on_host)) {
    if (name == "loss" && !std::isfinite(value)) {
      throw Error(Exit::kNumeric,
                  "{}: expected a finite loss over {}, found NaN or infinity; use another "
                  "checkpoint, or precision.mode = \"fp32\"",
                  weights.string(), format_plural(samples, "sample"));
    }
    json[name] = value;
    line += fmt::format("  {} {}", name, format_number(value));
  }
  fmt::print("{}", parsed.count("json") != 0
                       ? json.dump() + "\n"
                       : fmt::format("{}  ({})\n{}", line, format_plural(samples, "sample"),
                                     hardest_classes(by_class, loaded->classes)));
  return 0;
}

}  // namespace

Command eval_command() {
  return {.name = "eval",
          .arguments = "RUN|CHECKPOINT",
          .summary = "loss and accuracy of a run's checkpoint",
          .details =
              "Evaluates a run's best checkpoint, any other one, or, without RUN, the "
              "weights that the recipe's model.pretrained names. A checkpoint needs the evaluation "
              "data alone. Of images it also shows the "
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
                       {"trainer eval runs/resnet50 --set data.eval.path=other", "on other data"}},
          .run = evaluate};
}

}  // namespace brim::cli
