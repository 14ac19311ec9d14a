// Classes of image files, by a trained model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/train/inference/trained_model.h"

namespace brim::train {

struct Guess {
  std::string name;  // of the class
  double probability = 0;
};

/// Calls found(file, guesses) for each image file in turn, with its `top` likeliest classes, the
/// likeliest first; images are resized as the job's data are for evaluation, and `batch` of them
/// are computed together. Warns of files that can't be read and returns their names. Throws
/// Error(kNumeric) for logits that are not finite, and Error(kStopped) on request.
std::vector<std::string> classify(
    TrainedModel& trained, const std::vector<std::string>& files, int64_t top, int64_t batch,
    const std::function<void(const std::string& file, const std::vector<Guess>& guesses)>& found);

}  // namespace brim::train
