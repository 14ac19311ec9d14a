// How a job's model is cut into the stages of a pipeline (distributed.stages), decided on rank 0
// before anything is allocated and taken over by all ranks. A part's work is counted from its
// shapes, not measured: the same job is always cut in the same way, so that a resumed run is the
// same to the bit.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/distributed/group.h"
#include "framework/distributed/pipeline.h"
#include "framework/nn/model.h"

namespace brim::device {
class Memory;
}
namespace brim::distributed {
struct DistributedConfig;
}

namespace brim::train {

struct JobConfig;
struct TrainingComponents;

struct StagePlan {
  std::vector<size_t> cut;                            // the first part of each stage, 0 first
  std::vector<distributed::MessageShape> boundaries;  // what each stage but the last gives
  std::vector<std::string> lines;                     // for people, a stage each
  double slowest_share = 1;  // of the model's work that the slowest stage has; rank 0 knows
};

/// Where no cut fits the memory.
enum class IfNoneFits { kRefuse, kIgnoreMemory };

/// How many ranks, or pipelines of them, see samples of their own.
int64_t data_parts(const distributed::DistributedConfig& config, int64_t world);

/// Every rank calls it, with a batch that is known. Throws Error(kRecipe) on all ranks where the
/// ranks, the batch or the model can't be cut into so many stages, or `cut` names no parts of it;
/// Error(kResource) where no cut fits the memory. A job without stages has an empty plan.
StagePlan plan_stages(JobConfig& job, c10::Device device, distributed::Group& group,
                      const device::Memory& memory, IfNoneFits if_none_fits = IfNoneFits::kRefuse);

/// The cut of a model that is there, for so many micro-batches a step, of which `inputs` is one.
/// Throws as plan_stages() does.
StagePlan cut_model(const JobConfig& job, const TrainingComponents& whole, const at::Tensor& inputs,
                    int64_t micro_batches, int64_t cap_bytes, IfNoneFits if_none_fits);

/// Replaces `model` by this rank's stage of it.
std::shared_ptr<distributed::Pipeline> take_stage(const StagePlan& plan,
                                                  const std::shared_ptr<distributed::Group>& group,
                                                  std::shared_ptr<nn::Model>& model);

}  // namespace brim::train
