// The model of a finished or running job, ready to be asked: what `trainer predict` uses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/device/memory/memory.h"
#include "framework/optim/ema.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/run/run_folder.h"

namespace brim::train {

/// A job's model in evaluation mode, with the averaged weights where the run keeps an average,
/// under the recipe's cap of memory.
struct TrainedModel {
  /// Of the checkpoint, or of model.pretrained where there is none. A checkpoint says itself what
  /// its model takes, so that the training data need not be there. Throws what building the job and
  /// restoring its state throw.
  TrainedModel(JobConfig of, const std::optional<SavedRun>& saved);
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  JobConfig job;
  c10::Device device;
  std::unique_ptr<device::Memory> memory;
  TrainingComponents components;
  /// By label, printable: as the checkpoint names them, whatever the data's are by now.
  std::vector<std::string> classes;
  std::optional<optim::Ema::Swap> averaged;
};

}  // namespace brim::train
