#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/cli/predict.h"
#include "framework/data/sources/picture_files.h"
#include "framework/train/inputs.h"

namespace brim::cli {
namespace {

struct Guess {
  std::string name;
  double probability;
};

void print_guesses(const std::string& file, const std::vector<Guess>& guesses, bool as_json) {
  if (as_json) {
    nlohmann::json json = {{"input", file}, {"classes", nlohmann::json::array()}};
    for (const Guess& guess : guesses) {
      json["classes"].push_back({{"name", guess.name}, {"probability", guess.probability}});
    }
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  std::string line = printable(file) + ":";
  for (const Guess& guess : guesses) {
    line += fmt::format("  {} {:.1f} %", guess.name, 100 * guess.probability);
  }
  fmt::print("{}\n", line);
}

}  // namespace

std::vector<std::string> classify_images(TrainedModel& trained,
                                         const std::vector<std::string>& files,
                                         const cxxopts::ParseResult& options, int64_t batch) {
  if (files.empty()) {
    throw UsageError("no image files given; see trainer help predict");
  }
  const train::TrainingComponents& components = trained.components;
  const auto& known = dynamic_cast<const data::ImageSamples&>(*components.train_data);
  const std::vector<std::string>& names = trained.classes;
  const int64_t top =
      std::min<int64_t>(integer_option(options, "top", 1, 1'000'000), known.classes());
  const auto pictures =
      data::open_pictures({files.begin(), files.end()}, known.shape(), *trained.job.data.source);

  data::LoaderOptions loading = trained.job.data.eval_options();
  loading.on_error = data::OnError::kDrop;
  loading.max_skipped = std::ssize(files);
  loading.global_batch = loading.micro_batch = batch;
  Timeline timeline;
  data::DevicePrefetcher inputs(
      *pictures, loading,
      train::input_options(trained.job, *pictures, components.device, components.channels_last,
                           components.precision.parameters()),
      timeline);
  std::vector<std::string> bad;
  const at::NoGradGuard no_grad;
  while (const auto* input = inputs.next()) {
    if (stop_requested()) throw Error(Exit::kStopped, "stopped between images");
    at::Tensor logits;
    {
      const amp::Autocast autocast(components.device.type(), components.precision);
      logits = components.model->forward(input->tensors.inputs);
    }
    inputs.prefetch();
    auto [probabilities, classes] = logits.to(at::kFloat).softmax(1).topk(top, 1);
    probabilities = probabilities.cpu().contiguous();
    classes = classes.cpu().contiguous();
    const at::Tensor labels = input->tensors.labels.cpu();
    for (int64_t i = 0; i < input->count; ++i) {
      const std::string file = pictures->name(input->first_position + i);
      if (labels.const_data_ptr<int64_t>()[i] == data::kNoLabel) {
        bad.push_back(file);
        continue;
      }
      std::vector<Guess> guesses;
      for (int64_t k = 0; k < top; ++k) {
        const int64_t label = classes.const_data_ptr<int64_t>()[i * top + k];
        guesses.push_back({names[static_cast<size_t>(label)],
                           probabilities.const_data_ptr<float>()[i * top + k]});
      }
      print_guesses(file, guesses, options.count("json") != 0);
    }
  }
  return bad;
}

}  // namespace brim::cli
