// An optimizer whose state is split over the ranks: each updates its part of the parameters and
// gives it to the others (stage 1 of Rajbhandari et al., "ZeRO", SC 2020).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/distributed/group.h"
#include "framework/nn/block.h"
#include "framework/optim/optimizer.h"

namespace brim::distributed {

/// Rows first_row … first_row + rows - 1 (of dimension 0) of a parameter.
struct Shard {
  size_t parameter = 0;  // its place in the list
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t owner = 0;  // a rank

  bool operator==(const Shard&) const = default;
};

/// Splits parameters of these sizes (rows, bytes of a row) over `world` ranks. With `cuts_rows` the
/// first rank has the first rows, and so on, each its share of the bytes; else parameters stay
/// whole, the largest first, each to the rank with the fewest bytes so far.
struct RowSizes {
  int64_t rows = 0;
  int64_t row_bytes = 0;
};
std::vector<Shard> split_over_ranks(const std::vector<RowSizes>& sizes, int64_t world,
                                    bool cuts_rows);

class ShardedOptimizer : public optim::Optimizer, private nn::BlockObserver {
 public:
  using Build =
      std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

  /// `build` makes the optimizer of this rank's part. Updated parameters travel in buckets of at
  /// most `bucket_bytes` where they are small, those first that the list of parameters, and so most
  /// forward passes, begin with. They are waited for where a block of `model`, which outlives the
  /// optimizer, first needs them.
  ShardedOptimizer(std::shared_ptr<Group> group, torch::nn::Module& model,
                   std::vector<optim::ParameterGroup> groups, bool cuts_rows, int64_t bucket_bytes,
                   const Build& build);
  ~ShardedOptimizer() override;

  /// Returns while the updated parameters are still on their way: see finish_step().
  void step(double learning_rate, const optim::StepScale& scale) override;
  void finish_step() override;
  void begin_forward() override;
  double waited_s() const override { return waited_s_; }
  void zero_grad() override;
  optim::State state() override { return inner_->state(); }
  bool is_sharded() const override { return true; }
  void gather_state(optim::StateWriter* into) override;
  optim::State local_shard(const optim::State& whole) override;

 private:
  /// Small neighbouring shards of one owner, sent in one piece, or one shard alone.
  struct Bucket {
    int64_t owner = 0;
    std::vector<at::Tensor> shards;
    at::Tensor flat;  // their memory in a row; one shard alone is sent as it is
    Pending pending;
  };
  void make_buckets(int64_t bucket_bytes);
  void find_users(torch::nn::Module& model);
  void before(nn::Block& block, const at::Tensor& x) override;
  void after(nn::Block& /*block*/, const at::Tensor& /*x*/, const at::Tensor& /*y*/) override {}
  /// "=exp_avg #step ": what is kept of each parameter, and which of it are numbers. Every rank
  /// calls it.
  std::string kinds_of_state(const optim::State& own);
  /// Waits for a bucket, and puts its rows where they belong.
  void receive(Bucket& bucket);

  std::shared_ptr<Group> group_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;  // of all groups
  std::vector<Shard> shards_;
  std::vector<std::string> names_;   // of shards_: the parameter's, with rows where it is cut
  std::vector<at::Tensor> tensors_;  // views of the parameters
  std::vector<Bucket> buckets_;
  std::map<nn::Block*, std::set<size_t>> buckets_of_;  // that a block reads
  std::set<size_t> buckets_of_root_;                   // that are read outside of blocks
  std::set<const nn::Block*> has_run_;
  double waited_s_ = 0;
  std::unique_ptr<optim::Optimizer> inner_;
};

}  // namespace brim::distributed
