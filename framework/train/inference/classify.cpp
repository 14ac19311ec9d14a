#include "framework/train/inference/classify.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/data/sources/picture_files.h"
#include "framework/train/inputs.h"

namespace brim::train {

std::vector<std::string> classify(
    TrainedModel& trained, const std::vector<std::string>& files, int64_t top, int64_t batch,
    const std::function<void(const std::string& file, const std::vector<Guess>& guesses)>& found) {
  const RankModel& model = trained.components.model;
  const data::ImageSamples& known = *trained.components.data.train->images();
  const int64_t shown = std::min(top, known.classes());
  const auto pictures =
      data::open_pictures({files.begin(), files.end()}, known.shape(), *trained.job.data.source);

  data::LoaderOptions loading = trained.job.data.eval_options();
  loading.on_error = data::OnError::kDrop;
  loading.max_skipped = std::ssize(files);
  loading.global_batch = loading.micro_batch = batch;
  Timeline timeline;
  data::DevicePrefetcher inputs(*pictures, loading,
                                input_options(trained.job.data, *pictures, model.device,
                                              model.channels_last, model.precision.parameters()),
                                timeline);
  std::vector<std::string> bad;
  const at::NoGradGuard no_grad;
  while (const auto* input = inputs.next()) {
    if (stop_requested()) throw Error(Exit::kStopped, "stopped between images");
    at::Tensor logits;
    {
      const amp::Autocast autocast(model.device.type(), model.precision);
      logits = model.module->forward(input->tensors.inputs);
    }
    inputs.prefetch();
    require_finite(logits);
    auto [probabilities, classes] = logits.to(at::kFloat).softmax(1).topk(shown, 1);
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
      for (int64_t k = 0; k < shown; ++k) {
        const int64_t label = classes.const_data_ptr<int64_t>()[i * shown + k];
        guesses.push_back({trained.classes[static_cast<size_t>(label)],
                           probabilities.const_data_ptr<float>()[i * shown + k]});
      }
      found(file, guesses);
    }
  }
  return bad;
}

}  // namespace brim::train
