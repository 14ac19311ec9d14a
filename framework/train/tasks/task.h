// What is learned: a task turns model outputs into a loss to train on and metrics to report.
// The trainer knows tasks only through this interface. A recipe names one as train.task;
// registering another kind is a config struct and a line, as for models.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/transfer/to_device.h"
#include "framework/nn/model.h"
#include "framework/recipe/registry.h"

namespace brim::train {

/// Metrics of one evaluation in the order in which they are shown; the first is the loss. There is
/// one at least; names are printable, and each is there once.
using Metrics = std::vector<std::pair<std::string, double>>;

/// What one evaluation is ranked by.
struct Score {
  double metric = 0;
  double loss = 0;  // infinity where it is not finite
};

/// The metric that decides which checkpoint is best; of equal ones the lower loss does.
struct BestBy {
  std::string metric;  // one of the metrics
  bool is_lower = false;

  bool is_better(const Score& score, const Score& than) const {
    if (score.metric == than.metric) return score.loss < than.loss;
    return is_lower ? score.metric < than.metric : score.metric > than.metric;
  }
};

/// How the evaluation samples of one class came out.
struct ClassResult {
  int64_t samples = 0;
  int64_t correct = 0;
  std::vector<int64_t> taken_for = {};  // samples by predicted class; empty: not counted
};

/// A training loss, and what it would be without label smoothing.
struct Losses {
  at::Tensor loss;
  at::Tensor unsmoothed = {};  // a scalar without a gradient; undefined: the same, or not known
};

/// How each sample of an evaluation batch came out; all are [N], on the device.
struct Guesses {
  at::Tensor labels;         // int64; data::kNoLabel: the sample could not be read
  at::Tensor classes;        // int64, the likeliest
  at::Tensor probabilities;  // float32, of that class
  at::Tensor losses;         // float32
};

struct Evaluated {
  at::Tensor sums;                      // as evaluation_sums() gives them
  std::optional<Guesses> guesses = {};  // nullopt: the task makes none of single samples
};

class Task {
 public:
  virtual ~Task() = default;

  /// Mean loss over the batch, or over its tokens: a floating-point tensor [] with a gradient. Of
  /// an empty batch, which a rank gets when a step is too short for all, it is zero, and so are its
  /// gradients.
  virtual at::Tensor loss(nn::Model& model, const data::DeviceBatch& batch) const = 0;

  /// loss(), and beside it the same without label smoothing, for people to read.
  virtual Losses losses(nn::Model& model, const data::DeviceBatch& batch) const {
    return {.loss = loss(model, batch)};
  }

  /// Sums over one evaluation batch, float64 [K] on the device; K is the same for all batches,
  /// whose sums add up.
  virtual at::Tensor evaluation_sums(nn::Model& model, const data::DeviceBatch& batch) const = 0;

  /// evaluation_sums(), and beside them how each sample came out, for people to see.
  virtual Evaluated evaluate(nn::Model& model, const data::DeviceBatch& batch) const {
    return {.sums = evaluation_sums(model, batch)};
  }

  /// Metrics from the summed evaluation_sums, on the CPU. "top1", where there is one, is the
  /// accuracy in percent that schedules watch.
  virtual Metrics metrics(const at::Tensor& sums) const = 0;

  /// The same sums by class, in the order of the classes; empty where the task has none.
  virtual std::vector<ClassResult> by_class(const at::Tensor& /*sums*/) const { return {}; }

  virtual BestBy best_by() const = 0;
};

/// What a task is told of its job.
struct TaskOptions {
  nn::ModelShape input;
  double label_smoothing = 0.0;  // in [0, 1)
};

/// Text for a model to continue with, so that people see what it has learned.
struct Prompt {
  std::string text;  // empty: none
  int64_t max_tokens = 0;
};

/// Base of every task's config struct.
class TaskConfig : public recipe::Config {
 public:
  virtual bool takes(nn::InputKind kind) const = 0;
  /// Never null. `options.input` is of a kind that it takes.
  virtual std::unique_ptr<Task> build(const TaskOptions& options) const = 0;
  /// What the model writes on after each evaluation.
  virtual Prompt prompt() const { return {}; }
};

/// Registers auto, classification and language_modeling; call once at program start.
void register_tasks();

}  // namespace brim::train
