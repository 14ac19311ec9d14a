// trainer predict: what a trained model says about images, or how it continues text.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/placement.h"
#include "framework/cli/predict.h"
#include "framework/data/sources/file_list.h"
#include "framework/text/text_file.h"
#include "framework/train/inference/classify.h"

namespace brim::cli {
namespace {

void print_guesses(const std::string& file, const std::vector<train::Guess>& guesses,
                   bool as_json) {
  if (as_json) {
    nlohmann::json json = {{"input", file}, {"classes", nlohmann::json::array()}};
    for (const train::Guess& guess : guesses) {
      json["classes"].push_back({{"name", guess.name}, {"probability", guess.probability}});
    }
    fmt::print("{}", json_line(json));
    return;
  }
  std::string line = printable(file) + ":";
  for (const train::Guess& guess : guesses) {
    line += fmt::format("  {} {:.1f} %", guess.name, 100 * guess.probability);
  }
  fmt::print("{}\n", line);
}

std::vector<std::string> classify_images(train::TrainedModel& trained,
                                         const std::vector<std::string>& files,
                                         const cxxopts::ParseResult& options, int64_t batch) {
  if (files.empty()) {
    throw UsageError("no image files given; see trainer help predict");
  }
  const int64_t top = integer_option(options, "top", 1, 1'000'000);
  const bool as_json = options.count("json") != 0;
  return train::classify(trained, files, top, batch,
                         [&](const std::string& file, const std::vector<train::Guess>& guesses) {
                           print_guesses(file, guesses, as_json);
                           flush_output();
                         });
}

/// An option that has no effect on this kind of model is a mistake.
void refuse(const cxxopts::ParseResult& parsed, std::initializer_list<const char*> of_other_kind,
            const char* takes) {
  for (const char* option : of_other_kind) {
    if (parsed.count(option) == 0) continue;
    throw UsageError("--{}: this model takes {}; see trainer help predict", option, takes);
  }
}

/// Each file, and for each folder the files below it that the model takes.
std::vector<std::string> in_folders(const std::vector<std::string>& names, bool is_text) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(name, ignored)) {
      files.push_back(name);
      continue;
    }
    const auto inside = is_text ? text::text_files_below(name) : data::image_files_below(name);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

/// What the model says of the files; returns the bad ones.
std::vector<std::string> predict_files(train::TrainedModel& trained,
                                       const std::vector<std::string>& files, bool is_text,
                                       const std::string& weights,
                                       const cxxopts::ParseResult& options) {
  const auto batch = integer_option(options, "batch", 1, 65536);
  try {
    return is_text ? continue_texts(trained, files, options, batch)
                   : classify_images(trained, files, options, batch);
  } catch (const Error& error) {
    if (error.status() != Exit::kNumeric) throw;
    throw Error(Exit::kNumeric, "{}: {}", weights, error.what());
  }
}

int predict(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  // Without --run and --recipe the first word names the run, the others are files.
  std::vector<std::string> files;
  if (parsed.count("in") != 0) files = parsed["in"].as<std::vector<std::string>>();
  std::string run = parsed.count("run") != 0 ? parsed["run"].as<std::string>() : "";
  if (run.empty() && parsed.count("recipe") == 0 && !files.empty()) {
    run = files.front();
    files.erase(files.begin());
  }
  if (run.empty() && parsed.count("recipe") == 0) {
    throw UsageError("no run given; try: trainer predict runs/digits seven.png");
  }
  std::optional<train::SavedRun> saved;
  if (!run.empty()) saved = train::find_saved(run);
  train::JobConfig job =
      train::read_job(load_document(parsed, saved ? saved->run.recipe().string() : std::string()));
  if (!saved && job.model.pretrained.empty()) {
    throw Error(
        Exit::kRecipe,
        "nothing to predict with: expected the folder of a run or a checkpoint, or a recipe "
        "with model.pretrained");
  }
  const std::string weights = (saved ? saved->checkpoint : job.model.pretrained).string();
  const auto hold = hold_device(job.device, "predict");
  train::TrainedModel trained(std::move(job), saved);
  const bool is_text = trained.components.model.input.kind() == nn::InputKind::kTokens;
  if (is_text) {
    refuse(parsed, {"top"}, "text");
  } else {
    refuse(parsed, {"prompt", "tokens", "temperature", "top-k", "seed", "tokenizer"}, "images");
  }
  files = in_folders(files, is_text);
  const NothingToSave while_predicting;
  const auto bad = predict_files(trained, files, is_text, weights, parsed);
  if (!bad.empty()) {
    throw Error(Exit::kData, "{} of {} could not be read: {}; the warnings above say why",
                bad.size(), format_plural(std::ssize(files), "file"), fmt::join(bad, ", "));
  }
  return 0;
}

}  // namespace

Command predict_command() {
  return {
      .name = "predict",
      .arguments = "RUN [FILE|FOLDER...]",
      .summary = "classes of images, or more of a text",
      .details =
          "Classifies image files, or continues text, by a run's best checkpoint or any "
          "other one; the training data need not be there. A folder stands for all .jpg, .jpeg and "
          ".png files below it, or for text .txt and .txt.gz. With --run, or with --recipe for the "
          "weights of model.pretrained, all words are files or folders.",
      .add_options =
          [](cxxopts::Options& options) {
            using cxxopts::value;
            options.add_options()(
                "in", "the run, then files of images or of text to continue, or folders",
                value<std::vector<std::string>>(), "RUN FILE|FOLDER...")(
                "run", "the folder of a run or of a checkpoint", value<std::string>(),
                "RUN|CHECKPOINT")("batch", "files or prompts that are computed together",
                                  value<int64_t>()->default_value("16"),
                                  "N")("top", "images: the likeliest classes to show",
                                       value<int64_t>()->default_value("5"),
                                       "K")("prompt", "text to continue; may be repeated",
                                            value<std::vector<std::string>>(), "TEXT")(
                "tokens", "text: the most tokens to add", value<int64_t>()->default_value("100"),
                "N")("temperature", "text: 0 takes the likeliest token, 1 draws by probability",
                     value<double>()->default_value("0.8"),
                     "T")("top-k", "text: draws from the K likeliest tokens; 0: from all",
                          value<int64_t>()->default_value("0"), "K")(
                "seed", "text: of what is drawn", value<int64_t>()->default_value("0"), "N")(
                "tokenizer",
                "text: folder with tokens.json; without it, the run's, or that of the training "
                "data",
                value<std::string>(), "DIR");
            add_job_options(options);
            add_json_option(options, "print JSON, a line for each input");
          },
      .positional = {"in"},
      .examples = {{"trainer predict runs/digits seven.png", "the five likeliest classes"},
                   {"trainer predict runs/digits scans/ --json", "all images below a folder"},
                   {"trainer predict runs/gpt --prompt 'Once upon' --tokens 50",
                    "continues the text"}},
      .run = predict};
}

}  // namespace brim::cli
