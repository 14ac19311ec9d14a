// A whole recipe as config structs: what `trainer --recipe` reads before anything is allocated.
// Each section's struct lives with its owner; the sections that only the trainer reads are here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/amp/grad_scaler.h"
#include "framework/data/config.h"
#include "framework/device/config.h"
#include "framework/distributed/config.h"
#include "framework/nn/model.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/recipe/document.h"
#include "framework/recipe/registry.h"
#include "framework/train/tasks/task.h"
#include "framework/tune/batch_search.h"

namespace brim::train {

struct RunConfig {
  std::string name;
  int64_t seed = 0;
  bool deterministic = false;
  void fields(recipe::Fields& f);
};

struct ModelSection {
  recipe::Slot<nn::ModelConfig> model;
  std::filesystem::path pretrained;  // empty: weights are drawn at random
  bool strict = true;
  std::vector<std::string> freeze;
  void fields(recipe::Fields& f);
};

struct BatchConfig {
  std::optional<int64_t> global = 64;  // nullopt: what the tuned micro-batches of all ranks make
  std::optional<int64_t> micro = 0;    // 0: the global batch in one piece; nullopt: tuned
  tune::Objective objective = tune::Objective::kMemory;
  /// Samples of one forward and backward pass, at most.
  int64_t micro_or_all() const { return micro.value_or(0) > 0 ? *micro : global.value(); }
  void fields(recipe::Fields& f);
};

struct PrecisionConfig {
  amp::PrecisionMode mode = amp::PrecisionMode::kAuto;
  bool channels_last = true;
  std::optional<bool> fused;  // nullopt: where it is faster
  amp::GradScalerConfig scaler;
  void fields(recipe::Fields& f);
};

/// How the learning rate follows the global batch: in proportion (Goyal et al., "Accurate, Large
/// Minibatch SGD", 2017), with its square root, as suits Adam and its kin (Malladi et al., "On the
/// SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022), or not.
enum class BatchRule { kNone, kLinear, kSqrt };

struct OptimizerSection {
  double learning_rate = 0.1;
  BatchRule batch_rule = BatchRule::kNone;
  int64_t base_batch = 256;  // the global batch that learning_rate is for, where a rule follows it
  double weight_decay = 0.0;
  double layer_decay = 1.0;  // each layer's rate is this times the next one's
  recipe::Slot<optim::OptimizerConfig> optimizer;
  void fields(recipe::Fields& f);
};

struct ScheduleSection {
  std::optional<int64_t> steps;  // nullopt: those of the run
  recipe::Slot<optim::ScheduleConfig> schedule{"constant"};
  void fields(recipe::Fields& f);
};

/// What to do about a loss or gradient that is not a finite number.
enum class OnNan { kFail, kSkip };

struct TrainConfig {
  std::optional<int64_t> epochs;  // nullopt: one
  std::optional<int64_t> steps;   // nullopt: all steps of the epochs
  recipe::Slot<TaskConfig> task{"auto"};
  double clip_norm = 0.0;  // 0: no clipping
  double label_smoothing = 0.0;
  double ema = 0.0;  // decay of the moving average; 0: none
  OnNan on_nan = OnNan::kFail;
  std::vector<std::string> recompute;  // names of blocks, or patterns
  bool cuda_graph = false;
  void fields(recipe::Fields& f);
};

struct EvalConfig {
  bool enabled = true;
  int64_t every_epochs = 1;
  std::optional<int64_t> batch;  // nullopt: as in training
  void fields(recipe::Fields& f);
};

struct CheckpointConfig {
  bool enabled = true;
  int64_t every_steps = 0;     // 0: not by steps
  double every_minutes = 0.0;  // 0: not by time
  int64_t keep = 3;
  void fields(recipe::Fields& f);
};

struct TelemetryConfig {
  bool tensorboard = true;
  int64_t every_steps = 10;
  int64_t histograms_every_steps = 0;  // 0: none
  std::string prometheus = {};         // see telemetry::read_prometheus_target; "": none
  std::vector<std::string> exec = {};  // see telemetry::MetricsProgram; empty: none
  /// Whether metrics.jsonl has a line of that step of a run that ends with `last`.
  bool has_line(int64_t step, int64_t last) const {
    return step % every_steps == 0 || step == last;
  }
  void fields(recipe::Fields& f);
};

struct JobConfig final : recipe::Config {
  RunConfig run;
  ModelSection model;
  data::DataConfig data;
  BatchConfig batch;
  PrecisionConfig precision;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  TrainConfig train;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  device::DeviceConfig device;
  distributed::DistributedConfig distributed;
  TelemetryConfig telemetry;

  void fields(recipe::Fields& f) override;
};

/// The learning rate before the schedule, by the rule for the job's global batch.
double peak_learning_rate(const JobConfig& job);

/// How long the run is with so many training samples and the job's global batch. Throws
/// Error(kRecipe) where data.drop_last leaves no step.
optim::RunLength run_length(const JobConfig& job, int64_t samples);

/// The recipe's schedule over that length. Throws Error(kRecipe) for a warm-up that is longer.
std::unique_ptr<optim::Schedule> build_schedule(const JobConfig& job, const optim::RunLength& run);

/// Why the learning rate of a schedule that waits for evaluations never falls; "" where it may.
std::string no_plateau(const JobConfig& job, bool has_eval_data);

/// Reads a recipe with its layers. Throws Error(kRecipe) listing every problem, those between
/// sections included.
JobConfig read_job(const recipe::Value& document);

}  // namespace brim::train
