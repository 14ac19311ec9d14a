// Data parallel training: gradients are summed over the ranks in buckets, while backward still
// computes earlier layers', by LibTorch's c10d::Reducer (Li et al., "PyTorch Distributed", VLDB
// 2020).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/distributed/group.h"

namespace c10d {
class Reducer;
}

namespace brim::device {
class StreamEvent;
}

namespace brim::distributed {

/// In which numbers gradients travel; they are summed and kept as the parameters' own.
enum class Compress { kNone, kBf16, kFp16 };

struct DataParallelOptions {
  double bucket_mib = 25.0;
  Compress compress = Compress::kNone;
  bool unused_parameters = false;  // the loss may leave some out, different ones each step
  bool static_graph = false;       // those that it leaves out are always the same
  bool operator==(const DataParallelOptions&) const = default;
};

/// The names of the parameters in each bucket, in the order in which buckets are summed.
using BucketLayout = std::vector<std::vector<std::string>>;

class DataParallel {
 public:
  /// `layout` is what an earlier part of the run ended with, so that sums continue in the same
  /// order; empty, or not this model's: by size. Throws Error(kDistributed) naming rank and
  /// parameter where models differ between ranks. Every parameter that requires a gradient is in a
  /// bucket from here on, and its gradient a view of it.
  DataParallel(std::shared_ptr<Group> group, const torch::nn::Module& model,
               const DataParallelOptions& options, const BucketLayout& layout = {});
  ~DataParallel();

  /// Runs `backward`, which calls backward() on `loss`. Where `sums`, the gradients that have
  /// accumulated since the last sum are added up over the ranks; the loss is this rank's part of
  /// theirs. Every rank sums in the same calls. Call before_forward(sums) first.
  ///
  /// Returns whether every rank came as far: false where one gave the step up. Then no gradient of
  /// the step is of use, and every rank calls reset() before the step is taken again.
  bool backward(const at::Tensor& loss, bool sums, const std::function<void()>& backward);
  void before_forward(bool sums);

  /// For a rank that can't continue with its step, whatever it was doing, and in place of
  /// backward(): takes part in the sums that the others wait for, and lets them know.
  void give_up();
  /// Begins afresh between steps.
  void reset();

  /// Seconds that the last backward() waited for other ranks after its own work was done, as the
  /// host saw it.
  double exposed_s() const { return exposed_s_; }
  /// The moment on a GPU's stream at which the last sum's own work was done; null on the CPU, for a
  /// rank alone, and before take_compute_s() was first called.
  std::shared_ptr<const device::StreamEvent> own_work_done() const;
  /// Seconds of this rank's own work, from each step's first before_forward() to the last bucket
  /// filled, of the steps that the device has done since the last call. Measured from the first
  /// call on: who never asks pays nothing.
  double take_compute_s();
  /// What the next sum uses; empty for a single rank. Every rank calls it, between steps.
  BucketLayout layout();

 private:
  void make_reducer(const BucketLayout& layout);
  void settle_buckets();
  bool all_ranks_succeeded(bool did_own);

  std::shared_ptr<Group> group_;
  DataParallelOptions options_;
  struct Round;
  std::shared_ptr<Round> round_;  // the buckets summed in this step
  std::unique_ptr<c10d::Reducer> reducer_;
  std::unordered_map<size_t, std::string> names_;  // by place in the reducer's list
  std::vector<at::Tensor> parameters_;             // that list
  BucketLayout layout_;  // what the next sum uses; empty before the first one
  double exposed_s_ = 0;
  bool knows_graph_ = false;  // a static one
  bool in_step_ = false;
  bool is_ready_to_sum_ = false;  // before_forward(true) has been called in this step
};

/// Throws Error(kDistributed) unless the ranks' parameters and buffers have the same names, shapes,
/// types and values; says which rank and name differ from rank 0's.
void require_same_model(Group& group, const torch::nn::Module& model);

/// Buffers (running statistics) as rank 0 has them, on every rank.
void broadcast_buffers(Group& group, const torch::nn::Module& model);

}  // namespace brim::distributed
