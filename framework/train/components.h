// Everything that a job trains with, built and checked before the run's folder is touched.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/amp/grad_scaler.h"
#include "framework/data/dataset.h"
#include "framework/data/order/order.h"
#include "framework/data/transfer/to_device.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/fully_sharded.h"
#include "framework/distributed/group.h"
#include "framework/distributed/pipeline.h"
#include "framework/nn/model.h"
#include "framework/optim/ema.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/train/job.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

struct StagePlan;

struct TrainingComponents {
  std::shared_ptr<distributed::Group> group;  // of all ranks
  c10::Device device{c10::kCPU};
  amp::Precision precision;
  bool channels_last = false;  // image tensors in NHWC memory order
  bool has_sync_batch_norm =
      false;  // synchronized batch norms: for other ranks, within a forward or backward pass
  std::unique_ptr<data::Dataset> train_data;
  nn::ModelShape input;                                // what the data feed the model
  std::unique_ptr<data::Dataset> eval_data;            // null: no evaluation
  std::shared_ptr<const data::Order> order;            // of the training samples
  std::shared_ptr<nn::Model> model;                    // on the device
  int64_t parameters = 0, trained_parameters = 0;      // elements, of the whole model
  bool has_convolutions = false;                       // in the whole model
  int64_t largest_bytes = 0;                           // of the whole model's parameters
  std::shared_ptr<distributed::FullySharded> sharded;  // null: parameters are whole
  std::shared_ptr<distributed::Pipeline> pipeline;     // null: the model is no stage of another
  std::vector<std::string> stage_lines;                // of all stages, for people
  std::unique_ptr<Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<amp::GradScaler> scaler;
  std::unique_ptr<optim::Ema> ema;  // null: none
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;

  /// Null: every rank has the whole state, beside what the optimizer splits.
  distributed::SplitState* split() const;
  /// Whether a pass needs other ranks, which have part of the model's weights.
  bool shares_weights() const { return sharded || pipeline; }
  /// Stages of one pipeline see the same samples: which part of a step's are this rank's, of how
  /// many.
  int64_t data_rank() const { return pipeline ? pipeline->replica() : group->rank(); }
  int64_t data_world() const { return pipeline ? pipeline->replicas() : group->world(); }
};

/// What this rank keeps of the model, by name: its parameters, rows of them, or those of its stage.
distributed::FullySharded::Named own_parameters(const TrainingComponents& components);
/// The same, and the model's buffers.
optim::State own_tensors(const TrainingComponents& components);

/// Where a model's weights come from.
enum class Weights {
  kOfRecipe,      // model.pretrained, or drawn from the seed
  kOfCheckpoint,  // restore() is to follow, so model.pretrained is not read, nor need it be there
  kNone,  // shapes alone (nn/without_storage.h); model.pretrained is only checked against them
};

/// Opens the data, builds model, optimizer and schedule. The model is the same on every rank, built
/// from the job's seed; LibTorch's generators continue from numbers of each rank's own. Throws
/// Error of the kind that fits; no rank waits for another one. Where `memory` is given, that is
/// Error(kResource) before any weight has memory if the cap on tensors can't hold what every step
/// needs: parameters, gradients, the optimizer's state and the moving average, or a checkpoint's
/// copy.
/// `stages` is plan_stages()'s of a job that has some (stage_plan.h).
TrainingComponents build_components(const JobConfig& job, c10::Device device,
                                    std::shared_ptr<distributed::Group> group,
                                    Weights weights = Weights::kOfRecipe,
                                    const device::Memory* memory = nullptr,
                                    const StagePlan* stages = nullptr);

/// The recipe's task for such data. Throws Error(kRecipe) where its build() gives none, or one that
/// names no metric to be judged by.
std::unique_ptr<Task> build_task(const JobConfig& job, const nn::ModelShape& input);

/// From now on synchronized batch norms compute the same, with the same memory, of this rank's
/// samples alone, and no rows of a sharded model travel: a rank that runs out of memory leaves no
/// other one waiting. Passes are quicker by the waits; a sharded model's weights are not its own.
void stop_waiting_within_passes(TrainingComponents& components);

/// What measurements of speed and memory on a device depend on beside the job and the memory that it
/// may have: its name, the versions of Brim and LibTorch.
std::string device_and_versions(c10::Device device);

/// What decides what precision.mode = "auto" becomes: of a CPU as nn::choose_products() has found.
amp::Abilities abilities(c10::Device device);

/// Whether how many samples are in a pass is part of what is learned: batch norms keep statistics
/// of each. No other layer has buffers that a pass changes.
bool has_statistics(const nn::Model& model);

/// "bf16", "fp16", "tf32", "fp32", "fp64".
std::string_view precision_name(const amp::Precision& precision);

/// Why train.cuda_graph would have no effect in this job; empty where it has one.
std::string no_cuda_graph(const JobConfig& job, const TrainingComponents& components);

/// The plan in a few lines for people; options without effect are among them.
std::vector<std::string> describe(const JobConfig& job, const TrainingComponents& components);

}  // namespace brim::train
