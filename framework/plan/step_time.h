// How long a step takes under a strategy, by the formulas of docs/scaling.md: compute, the update,
// and what communication adds once it no longer hides behind compute.
#pragma once

#include <cstdint>
#include <string>

namespace brim::plan {

/// How ranks share a model.
enum class Sharing { kDdp, kZero1, kFsdp, kStages };
/// "ddp", "zero1", "fsdp", "stages".
const char* name_of(Sharing sharing);

struct Strategy {
  Sharing sharing = Sharing::kDdp;
  int64_t shards = 0;  // of fsdp: ranks that share one copy of the model; 0: all of them

  int64_t stages = 1;  // of kStages: ranks that have one copy of the model between them

  /// "ddp", "zero1", "fsdp", "fsdp, shards = 4", "stages = 2".
  std::string text() const;
  bool operator==(const Strategy&) const = default;
};

/// A rank's own work in one step.
struct Work {
  double pass_s = 0;           // of each micro-batch, whatever its size
  double sample_s = 0;         // of each sample, beside it
  double recompute_share = 0;  // of both, added where all blocks are recomputed
  double update_s = 0;         // of the whole model
  double launch_s = 0;         // of each micro-batch: it takes no less
  double ranks_per_core = 1;   // above 1, a rank that waits leaves its core to the others
};

/// What travels of a model.
struct ModelBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t bucket = 0;     // of gradients that ddp sums in one go
  int64_t units = 1;      // of fsdp
  int64_t gathered = 0;   // by all of them, once
  int64_t scattered = 0;  // the same
};

/// What a ring gets of the links between its ranks.
struct Link {
  double bytes_per_s = 0;
  double hop_s = 0;
};

struct Network {
  Link all_reduce = {}, gather = {}, scatter = {};  // inside a machine
  Link machines = {};                               // between them, for one rank
  int64_t ranks_of_machine = 1;
  /// The part of a pass behind which collectives can hide, backward's; 0 where they take the cores
  /// that compute.
  double hidden_share = 0;

  /// Seconds of a sum of `bytes` over n ranks: by rings inside machines, then between them.
  double all_reduce_s(int64_t n, double bytes) const;
  /// Of a gathering that gives every rank all of the `bytes`, and of a sum that leaves each its
  /// part.
  double gather_s(int64_t n, double bytes) const;
  double scatter_s(int64_t n, double bytes) const;
};

struct Batch {
  int64_t micro = 1;
  int64_t share = 1;  // a rank's samples of a step; a pipeline's, in stages
  bool recomputes = false;
};

/// What a cut makes of a model.
struct Cut {
  double slowest_share = 1;   // of the model's work that the slowest stage has
  int64_t message_bytes = 0;  // of a micro-batch at the widest boundary
};

struct StepTime {
  double compute_s = 0;
  double update_s = 0;
  double exposed_s = 0;  // of communication

  double total_s() const { return compute_s + update_s + exposed_s; }
};

StepTime step_time(const Strategy& strategy, int64_t ranks, const Batch& batch, const Work& work,
                   const ModelBytes& model, const Network& network, const Cut& cut = {});

}  // namespace brim::plan
