// One rank's training steps run without storage (nn/without_storage.h): what its tensors would hold
// at most under a strategy, without that memory and without the other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/memory/memory.h"
#include "framework/distributed/ranks.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/stage_plan.h"

namespace brim::train {

/// How a step is taken.
struct StepShape {
  int64_t micro = 1;
  int64_t micro_batches = 1;                // of a step
  std::vector<std::string> recompute = {};  // as train.recompute
  int64_t eval_batch = 0;                   // samples of an evaluation's pass; 0: there is none
};

/// Floating-point operations of a sample's forward pass, and those of them that lie in blocks.
struct ForwardFlops {
  int64_t all = 0, in_blocks = 0;  // of a sample
  int64_t operators = 0;           // that a forward pass calls, whatever its samples
};

class SimulatedRank {
 public:
  /// The job names the strategy and is made ready for probes (ProbeJob::set_size, at least 4
  /// samples a rank); job and memory outlive this. With `stages` it is the pipeline's rank of that
  /// number. On a GPU a checkpoint's copy lies elsewhere. Throws what building the model throws.
  SimulatedRank(const JobConfig& job, const distributed::Ranks& ranks, bool is_cpu,
                const device::Memory& memory, const StagePlan* stages = nullptr);
  SimulatedRank(const SimulatedRank&) = delete;
  SimulatedRank& operator=(const SimulatedRank&) = delete;

  /// The most that tensors hold from the building of the model to its last checkpoint. Throws
  /// Error(kRecipe) for a pattern that names no block.
  int64_t peak_bytes(const StepShape& shape);

  /// Of a model that is not sharded.
  ForwardFlops forward_flops();

  /// The cut of this rank's whole model for such a step, as it would be made under a cap, or
  /// without one where nothing fits under it.
  StagePlan cut(int64_t micro, int64_t micro_batches, int64_t cap_bytes);

  /// Without activations.
  const MemoryAccount& account() const { return account_; }
  const RankModel& model() const { return components_.model; }

 private:
  /// A micro-batch of a stage between its forward and its backward pass.
  struct Flight {
    at::Tensor model_inputs, inputs, outputs;
  };
  void accumulate(const data::DeviceBatch& batch, bool sums,
                  std::optional<amp::WeightCasts>& casts);
  void accumulate_in_stages(const StepShape& shape, const at::Tensor& bucket_memory);
  Flight forward_of_stage(int64_t micro);
  void backward_of_stage(const Flight& flight);
  void update();
  void evaluate(int64_t samples);
  data::DeviceBatch batch_of(int64_t samples) const;
  int64_t bucket_bytes() const;
  int64_t building_bytes(int64_t whole) const;

  const JobConfig& job_;
  bool is_cpu_;
  int64_t own_bytes_ = 0;  // that this holds between steps
  TrainingComponents components_;
  std::vector<at::Tensor> parameters_;  // that are trained, or rows of them
  int64_t building_bytes_ = 0;          // the most that was held until the model was there
  int64_t room_bytes_ = 0;              // for the copy that a checkpoint is written from
  int64_t last_copy_bytes_ = 0;         // of the checkpoint after the last step
  MemoryAccount account_;
  data::DeviceBatch few_;  // of the data's shape
};

}  // namespace brim::train
