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
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/distributed/data_parallel.h"
#include "framework/distributed/group.h"
#include "framework/distributed/strategy.h"
#include "framework/nn/block.h"
#include "framework/optim/optimizer.h"

namespace brim::distributed {

/// Rows of dimension 0 that rank `rank` of `world` has: as many as the others, but for the last
/// ranks, which may have fewer or none. A parameter without dimensions is one row.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};
RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t world);

class FullySharded : public Strategy, private nn::BlockObserver {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  /// Takes the model's parameters apart, which are on the CPU, and moves its buffers to `device`.
  /// Matrices of blocks are gathered as `compute`, everything else in its own type. The model keeps
  /// its tensors and their shapes; they have memory where whoever runs the model has called
  /// before_forward() or holds a Whole. No rank waits for another one.
  FullySharded(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> model,
               c10::Device device, c10::ScalarType compute, const DataParallelOptions& options);
  ~FullySharded() override;

  /// This rank's rows, under the parameters' names and in their order. They are what is trained;
  /// after backward() they have gradients.
  const Named& shards() const { return shards_; }
  /// For passes outside of steps: what the model's root needs is there while it lives.
  class Whole {
   public:
    explicit Whole(FullySharded& model) : model_(model) { model_.gather_root(); }
    ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    FullySharded& model_;
  };

  /// From now on nothing travels, and others' rows hold what this rank's do: passes take the same
  /// memory, and a rank that runs out of it leaves no other one waiting within a pass.
  void stay_apart() { is_apart_ = true; }
  bool is_apart() const { return is_apart_; }

  /// Throws Error(kDistributed) unless all ranks were built from the same model.
  void require_same_model();

  /// Passes tensors to rank 0's `into`, those that are named as a parameter is, or end so after a
  /// dot, as a whole, a few rows at a time; every rank takes part, the others with null.
  void gather(const optim::State& own, optim::StateWriter* into);
  /// What this rank has of such a state, where `own` is its part; what fits nothing stays in it.
  optim::State local_shard(const optim::State& whole, const optim::State& own) const;

  /// "13 units, 24 of 96 MiB a rank".
  std::string text() const;

  void before_forward(bool sums) override;
  double waited_s() const override { return waited_s_; }
  bool backward(const at::Tensor& loss, bool sums, const std::function<void()>& backward) override;
  void give_up() override;
  void reset() override;
  double exposed_s() const override { return exposed_s_; }
  double take_compute_s() override { return std::exchange(compute_s_, 0); }

 private:
  struct Piece;  // of one parameter
  struct Flat;   // pieces that travel together
  struct Unit;

  void before(nn::Block& block, const at::Tensor& x) override;
  void after(nn::Block& block, const at::Tensor& x, const at::Tensor& y) override;

  Piece make_piece(const std::string& name, const at::Tensor& parameter, c10::Device device,
                   c10::ScalarType type) const;
  void gather_root();
  void start_gather(Unit& unit);
  void make_whole(Unit& unit);
  static void free(Unit& unit);
  /// Frees everything that is whole or on its way.
  void release();
  /// Of a unit: nothing reads its parameters any more, and its gradients go on their way.
  void end_backward(Unit& unit);
  void start_sum(Unit& unit);
  void finish_sums();
  const Piece* find(const std::string& name) const;

  std::shared_ptr<Group> group_;
  std::shared_ptr<torch::nn::Module> model_;
  DataParallelOptions options_;
  std::string description_;
  std::vector<std::unique_ptr<Unit>> units_;  // the root first
  std::map<const nn::Block*, size_t> unit_of_;
  Named shards_;
  std::map<std::string, std::pair<size_t, size_t>> places_;  // unit and piece, by name
  Unit* summing_ = nullptr;
  bool is_apart_ = false;
  double started_s_ = 0;  // this pass
  double waited_s_ = 0, exposed_s_ = 0, compute_s_ = 0;
};

}  // namespace brim::distributed
