// A part of a model that can be computed twice: where its activations are too large to keep, only
// its input is kept, and backward computes the rest again (activation checkpointing; Chen et al.,
// "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace brim::nn {

class Block;

/// Told of each use of a block, by whoever calls the model.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  /// Before anything of the block is read.
  virtual void before(Block& block, const at::Tensor& x) = 0;
  virtual void after(Block& block, const at::Tensor& x, const at::Tensor& y) = 0;
};

/// One tensor in, one tensor out. What holds blocks calls them by run().
class Block : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x) = 0;

  /// forward(x). Where the block is recomputed, gradients are the same to the bit: the second pass
  /// has the first one's random numbers and autocast, and leaves running statistics alone.
  at::Tensor run(const at::Tensor& x);

  void set_recomputed(bool is_recomputed) { is_recomputed_ = is_recomputed; }
  /// Null: no one is told any more.
  void observe(BlockObserver* observer) { observer_ = observer; }

 private:
  at::Tensor run_unobserved(const at::Tensor& x);

  BlockObserver* observer_ = nullptr;
  bool is_recomputed_ = false;
};

/// The blocks inside `model`, by name, in the order in which they are registered; blocks inside
/// blocks among them.
std::vector<std::pair<std::string, Block*>> named_blocks(torch::nn::Module& model);

/// Recomputes the blocks inside `model` whose names match one of the patterns ('*' and '?' match
/// dots too, as in "layer1.*"). Throws Error(kRecipe) listing the model's blocks where a pattern
/// matches none.
void recompute(torch::nn::Module& model, const std::vector<std::string>& patterns);

/// Whether this thread is in a block's second pass.
bool is_recomputing();

}  // namespace brim::nn
