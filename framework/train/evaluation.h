// One pass over the evaluation data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "framework/train/step/micro_batch.h"
#include "framework/train/tasks/task.h"

namespace brim::optim {
class Ema;
}

namespace brim::train {

class Inputs;
class SamplePredictions;
struct RankModel;

/// Gives the task's sums over this rank's part of the evaluation data. Where memory runs out, the
/// data are gone over again in passes half as large, as later evaluations then are.
class Evaluator {
 public:
  /// By the averaged weights where `ema` is not null. All of these outlive it.
  Evaluator(RankModel& model, const Task& task, optim::Ema* ema, const Inputs& inputs)
      : model_(model), task_(task), ema_(ema), inputs_(inputs) {}

  /// In passes of `micro` samples where the recipe gives no size. After a stop request they are
  /// those of a part of the data, or undefined. The model is in training mode afterwards.
  /// `samples`, where given, is told how each sample came out. Throws Error(kResource) where a
  /// single sample is too much.
  at::Tensor sums(int64_t micro, SamplePredictions* samples = nullptr);
  /// The same, but nullopt where memory runs out.
  std::optional<at::Tensor> try_sums(int64_t micro);

 private:
  std::optional<at::Tensor> try_in_passes(int64_t batch, int64_t pass, SamplePredictions* samples,
                                          std::string& shortage);

  RankModel& model_;
  const Task& task_;
  optim::Ema* ema_;
  const Inputs& inputs_;
  std::optional<MicroBatch> passes_;
  int64_t evaluations_ = 0;  // begun
};

/// What the task makes of those of all ranks, on the CPU. Throws Error(kRecipe) unless there are
/// metrics, each has a printable name of its own, and best_by() is among them.
Metrics metrics_of(const Task& task, const at::Tensor& sums);

}  // namespace brim::train
