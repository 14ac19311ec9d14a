// In which order a stage of a pipeline takes the forward and backward passes of a step's
// micro-batches, as data.
#pragma once

#include <cstdint>
#include <vector>

namespace brim::distributed {

/// k1F1B: after its first few forward passes a stage alternates one forward and one backward pass
/// (PipeDream-Flush; Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML
/// 2021). kGpipe: all forward passes, then all backward ones (Huang et al., "GPipe", NeurIPS 2019).
enum class ScheduleKind { k1F1B, kGpipe };

struct StageAction {
  bool is_backward = false;
  int64_t micro_batch = 0;  // of the step

  bool operator==(const StageAction&) const = default;
};
using StageActions = std::vector<StageAction>;

/// What `stage` does in a step. Backward passes come in the order of the micro-batches.
StageActions stage_actions(ScheduleKind kind, int64_t stages, int64_t stage, int64_t micro_batches);

/// Micro-batches whose activations a stage holds at a time, at most.
int64_t live_micro_batches(ScheduleKind kind, int64_t stages, int64_t stage, int64_t micro_batches);

}  // namespace brim::distributed
