// Data parallel training: gradients are summed over the ranks in buckets, while backward still
// computes earlier layers', by LibTorch's c10d::Reducer (Li et al., "PyTorch Distributed", VLDB
// 2020).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/distributed/group.h"
#include "framework/distributed/strategy.h"

namespace c10d {
class Reducer;
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

/// What a parameter with one ends a step with.
Error sparse_gradient(const std::string& parameter);

/// The type in which gradients travel.
at::ScalarType travelling(at::ScalarType gradients, Compress compress);

/// How a rank's step went. Of all ranks' the last one in this list counts.
enum class StepOutcome { kSummed, kGivenUp, kLeftOut };

/// Tells the other ranks, and returns whether all have summed. Where a rank's loss has left out
/// parameters, whose names are `left_out` there, throws Error(kRecipe) on every rank, which names
/// rank and parameters.
bool agree_on_step(Group& group, StepOutcome own, const std::vector<std::string>& left_out,
                   const DataParallelOptions& options);

class DataParallel : public Strategy {
 public:
  /// `layout` is what an earlier part of the run ended with, so that sums continue in the same
  /// order; empty, or not this model's: by size. Throws Error(kDistributed) naming rank and
  /// parameter where models differ between ranks. Every parameter that requires a gradient is in a
  /// bucket from here on, and its gradient a view of it.
  DataParallel(std::shared_ptr<Group> group, const torch::nn::Module& model,
               const DataParallelOptions& options, const BucketLayout& layout = {});
  ~DataParallel() override;

  void before_forward(bool sums) override;
  /// A loss that leaves out a parameter on some rank, against the options, is an Error(kRecipe) on
  /// every rank, also out of give_up(); it names the rank and its parameters. Before another step
  /// call reset(). A sparse gradient is an Error(kRecipe) that names its parameter.
  bool backward(const at::Tensor& loss, bool sums, const std::function<void()>& backward) override;
  void give_up() override;
  void reset() override;
  /// After its own work was done.
  double exposed_s() const override { return exposed_s_; }
  std::shared_ptr<const device::StreamEvent> own_work_done() const override;
  /// From each step's first before_forward() to the last bucket filled. Measured from the first
  /// call on: who never asks pays nothing.
  double take_compute_s() override;
  BucketLayout layout() override;

 private:
  void make_reducer(const BucketLayout& layout);
  void renew_reducer();
  void watch_gradients();
  void settle_buckets();
  void take_part_in_rest();
  std::vector<std::string> left_out() const;
  bool all_ranks_summed(StepOutcome own);

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

/// "float32 [64, 3, 7, 7]", and a digest of the values.
using TensorDescription = std::pair<std::string, std::string>;
using ModelDescription = std::map<std::string, TensorDescription>;  // by name
/// `rows`: how many of its first rows the digest is of; nullopt: all.
TensorDescription describe(const at::Tensor& tensor, std::optional<int64_t> rows = std::nullopt);
/// Of parameters and buffers.
ModelDescription describe_model(const torch::nn::Module& model);

/// Throws Error(kDistributed) unless all ranks' models have one description; says which rank and
/// name differ from rank 0's.
void require_same_model(Group& group, const ModelDescription& description);

/// Buffers (running statistics) as rank 0 has them, on every rank.
void broadcast_buffers(Group& group, const torch::nn::Module& model);

}  // namespace brim::distributed
