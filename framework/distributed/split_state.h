// What a checkpoint asks of ranks that keep different parts of one model's state: rows of every
// tensor (fully_sharded.h), or other tensors (pipeline.h).
#pragma once

#include "framework/optim/optimizer.h"

namespace brim::distributed {

class SplitState {
 public:
  SplitState() = default;
  virtual ~SplitState() = default;
  SplitState(const SplitState&) = delete;
  SplitState& operator=(const SplitState&) = delete;

  /// Passes the whole of tensors that are named as a parameter or buffer is, or end so after a dot,
  /// to rank 0's `into`, a few rows at a time; every rank takes part, the others with null.
  virtual void gather(const optim::State& own, optim::StateWriter* into) = 0;
  /// What this rank has of such a state, where `own` is its part; what fits nothing stays in it.
  virtual optim::State local_shard(const optim::State& whole, const optim::State& own) const = 0;
};

/// "layer1.weight" of "exp_avg.layer1.weight"; empty where there is no dot.
std::string after_dot(const std::string& name);
/// Of a checkpoint, what travels at a time.
inline constexpr int64_t kGatheredBytes = 16 << 20;

}  // namespace brim::distributed
