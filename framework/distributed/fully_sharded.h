// A model of which each rank keeps a part: some rows of every parameter, of its gradient and of its
// optimizer's state (Rajbhandari et al., "ZeRO", SC 2020, stage 3; Zhao et al., "PyTorch FSDP",
// VLDB 2023). A block's parameters are whole on all ranks only while the block computes: they are
// gathered while the block before it computes, freed after it, and gathered again for its backward
// pass, at whose end each rank gets the sum of its rows' gradients.
//
// Units are the model's outermost blocks (nn/block.h), and the rest of the model, its root, which
// is whole from the start of a pass to its end: what lies there may be used twice, as GPT-2's
// embedding is.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/distributed/data_parallel.h"
#include "framework/distributed/group.h"
#include "framework/distributed/sharded_unit.h"
#include "framework/distributed/split_state.h"
#include "framework/distributed/strategy.h"
#include "framework/nn/block.h"
#include "framework/optim/optimizer.h"

namespace brim::distributed {

class FullySharded : public Strategy, public SplitState, private nn::BlockObserver {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  /// Gives a tensor the values of those rows and of row 0, or all: whether it was all.
  using Fill = std::function<bool(at::Tensor& tensor, RowRange rows)>;

  /// Takes the model's parameters apart, which are on the CPU, one after the other, and moves its
  /// buffers to `device`. fill() is called before a tensor's values are read.
  /// Matrices of blocks are gathered as `compute`, everything else in its own type. The model keeps
  /// its tensors and their shapes; they have memory from before_forward() to the end of a pass. No
  /// rank waits for another one.
  ///
  /// `shards` ranks, neighbours in number, share one copy of the model; the others have more copies
  /// (hybrid sharding). Throws Error(kRecipe) where they don't divide the ranks.
  FullySharded(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> model,
               const Fill& fill, c10::Device device, c10::ScalarType compute, int64_t shards,
               const DataParallelOptions& options);
  ~FullySharded() override;

  /// This rank's rows, under the parameters' names and in their order. They are what is trained;
  /// after backward() they have gradients.
  const Named& shards() const { return shards_; }
  /// The root first.
  const std::vector<ShardedUnit>& units() const { return units_; }

  /// For passes without a backward one; the first has begun, the last ends with this.
  class Evaluation {
   public:
    explicit Evaluation(FullySharded& model) : model_(model) { model_.before_forward(false); }
    ~Evaluation();
    Evaluation(const Evaluation&) = delete;
    Evaluation& operator=(const Evaluation&) = delete;

   private:
    FullySharded& model_;
  };
  /// In such a pass, for a rank that can't finish it: takes part in what the others wait for.
  void give_up_forward();

  /// From now on nothing travels, and others' rows hold what this rank's do: passes take the same
  /// memory, and a rank that runs out of it leaves no other one waiting within a pass.
  void stay_apart() { exchange_.is_apart = true; }
  bool is_apart() const { return exchange_.is_apart; }

  /// The sum over the ranks that share one copy of the model, in place.
  void add_up(at::Tensor& values);

  /// Throws Error(kDistributed) unless all ranks were built from the same model.
  void require_same_model();

  void gather(const optim::State& own, optim::StateWriter* into) override;
  optim::State local_shard(const optim::State& whole, const optim::State& own) const override;

  /// "13 units, of whose 96 MiB each rank keeps 24 MiB".
  std::string text() const;

  void before_forward(bool sums) override;
  double waited_s() const override { return exchange_.waited_s - waited_before_s_; }
  bool backward(const at::Tensor& loss, bool sums, const std::function<void()>& backward) override;
  void give_up() override;
  void reset() override;
  double exposed_s() const override { return exposed_s_; }
  double take_compute_s() override { return std::exchange(compute_s_, 0); }

 private:
  /// A collective of a pass, which every rank begins in the same place.
  struct Collective {
    bool is_sum = false;
    size_t unit = 0;
  };

  void before(nn::Block& block, const at::Tensor& x) override;
  void after(nn::Block& block, const at::Tensor& x, const at::Tensor& y) override;

  void take_apart(const Fill& fill, c10::Device device, c10::ScalarType compute);
  size_t unit_of(const std::string& parameter, size_t uses) const;
  RowRange own_rows(int64_t rows) const;
  RowRange rows_to_fill(int64_t rows) const;
  /// Meets the ranks of its parts, once.
  void connect();
  void start_gather(size_t unit);
  void make_whole(size_t unit);
  /// Nothing reads the unit's parameters any more, and its gradients are sent.
  void end_backward(size_t unit);
  void start_sum(size_t unit);
  /// Brings all sums that are on their way one stage further.
  void advance_sums();
  std::vector<Collective> expected_forward() const;
  std::vector<Collective> expected_backward() const;
  /// Those of `expected` that this rank has not begun yet.
  void take_part_in_rest(const std::vector<Collective>& expected);
  void gather_rows(const std::string& name, const at::Tensor& own, const ShardedUnit::Piece& piece,
                   optim::StateWriter* into);
  const ShardedUnit::Piece* find(const std::string& name) const;

  std::shared_ptr<Group> group_;
  int64_t shard_count_;
  std::shared_ptr<torch::nn::Module> model_;
  ShardedExchange exchange_;
  ModelDescription description_;
  std::vector<ShardedUnit> units_;                           // the root first
  std::vector<nn::Block*> blocks_;                           // of the other units
  std::map<const nn::Block*, size_t> places_;                // in units_
  std::map<std::string, std::pair<size_t, size_t>> pieces_;  // unit and piece, by name
  Named shards_;

  // Of the pass under way.
  bool is_backward_ = false;
  std::vector<Collective> begun_;
  std::vector<bool> is_summed_;        // by unit, or on its way
  std::vector<const void*> inputs_;    // by unit, to compare with
  std::optional<size_t> summing_;      // the unit whose gradients are on their way
  std::optional<size_t> replicating_;  // the one before, whose sums are on theirs
  double started_s_ = 0;
  double waited_before_s_ = 0;  // of exchange_.waited_s, before the forward pass
  double exposed_s_ = 0, compute_s_ = 0;
  std::vector<Collective> forward_, backward_;  // of the last pass that was complete
};

}  // namespace brim::distributed
