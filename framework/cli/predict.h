// The two halves of `trainer predict`, and the model that they ask.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/cli/options.h"
#include "framework/device/memory.h"
#include "framework/optim/ema.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/run_folder.h"

namespace brim::cli {

/// A job's model in evaluation mode, with the averaged weights where the run keeps an average,
/// under the recipe's cap of memory.
struct TrainedModel {
  /// Of the checkpoint, or of model.pretrained where there is none. A checkpoint says itself what
  /// its model takes, so that the training data need not be there. Throws what building the job and
  /// restoring its state throw.
  TrainedModel(train::JobConfig of, const std::optional<train::SavedRun>& saved);
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  train::JobConfig job;
  c10::Device device;
  std::unique_ptr<device::Memory> memory;
  train::TrainingComponents components;
  /// By label, printable: as the checkpoint names them, whatever the data's are by now.
  std::vector<std::string> classes;
  std::optional<optim::Ema::Swap> averaged;
};

/// Prints the likeliest classes of each image file. Warns of the bad ones and returns their names.
std::vector<std::string> classify_images(TrainedModel& trained,
                                         const std::vector<std::string>& files,
                                         const cxxopts::ParseResult& options, int64_t batch);

/// Prints how each prompt or file continues. The same of bad files.
std::vector<std::string> continue_texts(TrainedModel& trained,
                                        const std::vector<std::string>& files,
                                        const cxxopts::ParseResult& options, int64_t batch);

}  // namespace brim::cli
