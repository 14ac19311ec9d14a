// The model of a finished or running job, ready to be used: for `trainer eval` and `predict`.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/device/memory/memory.h"
#include "framework/optim/ema.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/state.h"

namespace brim::train {

/// A job's components with trained weights, under the recipe's cap of memory, and without
/// evaluation data.
struct LoadedModel {
  /// With the weights of the checkpoint, or of model.pretrained where there is none. Where `input`
  /// says what the model takes, the training data need not be there: made-up samples of that shape
  /// stand for them. Throws what building the job and restoring its state throw.
  LoadedModel(JobConfig of, const std::optional<SavedRun>& saved,
              const std::optional<nn::ModelShape>& input);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  JobConfig job;
  c10::Device device;
  std::unique_ptr<device::Memory> memory;
  TrainingComponents components;
  TrainState state;  // of the checkpoint
  /// By label, printable: as the checkpoint names them, whatever the data's are by now.
  std::vector<std::string> classes;
};

/// The same in evaluation mode, with the averaged weights where the run keeps an average.
struct TrainedModel : LoadedModel {
  /// A checkpoint says itself what its model takes.
  TrainedModel(JobConfig of, const std::optional<SavedRun>& saved);

  /// The folder with the tokenizer of the text that was learned (text/tokenizer_files.h): the
  /// run's, else the training data's; empty where those have none.
  std::filesystem::path tokenizer;
  std::optional<optim::Ema::Swap> averaged;
};

/// Throws Error(kNumeric) where a row of logits [N, V] has no finite maximum: it says nothing.
void require_finite(const at::Tensor& logits);

}  // namespace brim::train
