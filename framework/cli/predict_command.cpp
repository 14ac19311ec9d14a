// trainer predict: what a trained model says about images, or how it goes on with text.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/cli/commands.h"
#include "framework/cli/predict.h"
#include "framework/device/choice.h"
#include "framework/distributed/group.h"
#include "framework/train/state.h"

namespace brim::cli {
namespace {

cxxopts::Options predict_options() {
  using cxxopts::value;
  cxxopts::Options options("trainer predict",
                           "Classifies image files, or goes on with text, by a run's best "
                           "checkpoint, any other one, or a file of weights.");
  options.positional_help("FILE…");
  add_job_options(options);
  options.add_options()("run",
                        "a run's or a checkpoint's folder; left out: the recipe's model.pretrained",
                        value<std::string>(), "RUN|CHECKPOINT")(
      "in", "image files, or files of text to go on with", value<std::vector<std::string>>())(
      "batch", "files or prompts that are computed together", value<int64_t>()->default_value("16"),
      "N")("top", "images: the likeliest classes that are shown",
           value<int64_t>()->default_value("5"), "K")(
      "prompt", "text to go on with; may be repeated", value<std::vector<std::string>>(), "TEXT")(
      "tokens", "text: at most so many tokens more", value<int64_t>()->default_value("100"), "N")(
      "temperature", "text: 0 takes the likeliest token, 1 draws by probability",
      value<double>()->default_value("0.8"))("top-k",
                                             "text: draws from so many of the likeliest; 0: all",
                                             value<int64_t>()->default_value("0"), "K")(
      "seed", "text: of what is drawn", value<int64_t>()->default_value("0"))(
      "tokenizer", "text: folder with tokens.json; default: that of the training data",
      value<std::string>(),
      "FOLDER")("json", "print JSON, a line for each input")("h,help", "show this help");
  options.parse_positional({"in"});
  return options;
}

}  // namespace

TrainedModel::TrainedModel(train::JobConfig of, const std::optional<train::SavedRun>& saved)
    : job(std::move(of)), device(device::choose_device(job.device)) {
  if (!job.batch.global) job.batch.global = job.optimizer.base_batch;
  if (!job.batch.micro) job.batch.micro = *job.batch.global;
  job.eval.enabled = false;
  memory = device::memory_of(device, job.device);
  parts = train::build_parts(job, device, distributed::Group::alone(),
                             saved ? train::Weights::kOfCheckpoint : train::Weights::kOfRecipe);
  if (saved) train::restore(saved->checkpoint, job, parts);
  if (parts.ema) averaged.emplace(*parts.ema);
  parts.model->eval();
}

int predict_command(int argc, char** argv) {
  cxxopts::Options options = predict_options();
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  std::optional<train::SavedRun> saved;
  if (parsed.count("run") != 0) saved = train::find_saved(parsed["run"].as<std::string>());
  train::JobConfig job =
      train::read_job(load_document(parsed, saved ? saved->recipe.string() : std::string()));
  if (!saved && job.model.pretrained.empty()) {
    throw Error(Exit::kRecipe,
                "nothing to predict with: expected --run with the folder of a run or a checkpoint, "
                "or a recipe with model.pretrained");
  }
  TrainedModel trained(std::move(job), saved);
  const auto batch = integer_option(parsed, "batch", 1, 65536);
  if (trained.parts.input.kind() == nn::InputKind::kTokens) {
    continue_texts(trained, parsed, batch);
  } else {
    classify_images(trained, parsed, batch);
  }
  return 0;
}

}  // namespace brim::cli
