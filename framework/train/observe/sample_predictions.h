// What people see of an evaluation: the mistakes with the highest loss, and some samples at random,
// as images with label, prediction and confidence. While the evaluation runs, four numbers a sample
// are kept on the device, which nothing waits for; images are read again at the run's end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

class SamplePredictions {
 public:
  static constexpr int64_t kShown = 12;         // mistakes, and as many samples at random
  static constexpr int64_t kLargestSide = 128;  // pixels; larger images are resized

  /// How a sample came out, on the host.
  struct Prediction {
    int64_t sample = 0;  // its number in the evaluation data
    int64_t label = 0;
    int64_t prediction = 0;
    float confidence = 0;
    float loss = 0;  // infinite where it is not a number
  };

  /// Of the evaluation after this step.
  explicit SamplePredictions(int64_t step) : step_(step) {}

  /// The evaluation begins again.
  void clear() { parts_.clear(); }
  /// Samples from `first` on of the evaluation data. Waits for nothing.
  void add(int64_t first, const Guesses& guesses);
  bool is_empty() const { return parts_.empty(); }

  /// Writes the images to `run`/samples, over those of an earlier part of the run, and returns
  /// run.json's "sample_predictions": "step", "worst" and "random", lists of "file", "sample" (the
  /// name that the data have for it), "label", "prediction", "confidence" and "loss". Samples that
  /// can't be read are left out. Throws Error(kResource) where an image can't be written.
  nlohmann::json write(const JobConfig& job, const TrainingComponents& components,
                       const std::filesystem::path& run) const;

 private:
  struct Part {
    int64_t first;
    at::Tensor rows;  // float32 [4, N]: label, class, probability, loss
  };

  std::vector<Prediction> all() const;

  int64_t step_;
  std::vector<Part> parts_;
};

}  // namespace brim::train
