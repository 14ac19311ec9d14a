// What people see of an evaluation: the mistakes with the highest loss, and some samples at random,
// as images with label, prediction and confidence. While the evaluation runs, four numbers a sample
// are kept on the device, which nothing waits for; images are read again at the run's end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/train/tasks/task.h"

namespace brim::data {
class ImageSamples;
}

namespace brim::train {

class SamplePredictions {
 public:
  static constexpr int64_t kShown = 12;         // mistakes, and as many samples at random
  static constexpr int64_t kLargestSide = 128;  // pixels; larger images are resized

  /// Of the evaluation after this step.
  explicit SamplePredictions(int64_t step) : step_(step) {}

  /// The evaluation begins again.
  void clear() { parts_.clear(); }
  /// Samples from `first` on of the evaluation data. Waits for nothing.
  void add(int64_t first, const Guesses& guesses);
  bool is_empty() const { return parts_.empty(); }

  /// "step", "worst" and "random", lists of "sample" (its number in the evaluation data), "label",
  /// "prediction" (numbers of classes), "confidence" and "loss". Waits for the device.
  nlohmann::json chosen(uint64_t seed) const;

 private:
  struct Part {
    int64_t first;
    at::Tensor rows;  // float32 [4, N]: label, class, probability, loss
  };

  int64_t step_;
  std::vector<Part> parts_;
};

/// Writes the images of what was chosen() to `run`/samples, over those of an earlier part of the
/// run, and returns run.json's "sample_predictions": the same with names of samples and classes,
/// and each image's "file". Samples that can't be read are left out. Throws Error(kResource) where
/// an image can't be written.
nlohmann::json write_samples(const nlohmann::json& chosen, const data::ImageSamples& data,
                             const std::vector<std::string>& class_names,
                             const std::filesystem::path& run);

}  // namespace brim::train
