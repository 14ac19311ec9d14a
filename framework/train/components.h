// Everything that a job trains with, built and checked before the run's folder is touched.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/amp/grad_scaler.h"
#include "framework/data/dataset.h"
#include "framework/data/order/order.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/nn/model.h"
#include "framework/optim/ema.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/train/build_model.h"
#include "framework/train/job.h"
#include "framework/train/rank_model.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

struct Datasets {
  std::unique_ptr<data::Dataset> train;
  std::unique_ptr<data::Dataset> eval;       // null: no evaluation
  std::shared_ptr<const data::Order> order;  // of the training samples
  int64_t steps_per_epoch = 0;
};

struct TrainingComponents {
  RankModel model;
  Datasets data;
  std::unique_ptr<Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<amp::GradScaler> scaler;
  std::unique_ptr<optim::Ema> ema;  // null: none
  int64_t total_steps = 0;
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
std::unique_ptr<Task> build_task(const TrainConfig& config, const nn::ModelShape& input);

/// What measurements of speed and memory on a device depend on beside the job and the memory that
/// it may have: its name, the versions of Brim and LibTorch.
std::string device_and_versions(c10::Device device);

/// What decides what precision.mode = "auto" becomes: of a CPU as nn::choose_products() has found.
amp::Abilities abilities(c10::Device device);

/// Whether how many samples are in a pass is part of what is learned: batch norms keep statistics
/// of each. No other layer has buffers that a pass changes.
bool has_statistics(const nn::Model& model);

/// "bf16", "fp16", "tf32", "fp32", "fp64".
std::string_view precision_name(const amp::Precision& precision);

/// Why train.cuda_graph would have no effect in this job; empty where it has one.
std::string no_cuda_graph(const JobConfig& job, const RankModel& model);

/// The plan in a few lines for people; options without effect are among them.
std::vector<std::string> describe(const JobConfig& job, const TrainingComponents& components);

}  // namespace brim::train
