// A part of a model that can be computed twice: where its activations are too large to keep, only
// its input is kept, and backward computes the rest again (activation checkpointing; Chen et al.,
// "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace brim::nn {

/// One tensor in, one tensor out. What holds blocks calls them by run().
class Block : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x) = 0;

  /// forward(x). Where the block is recomputed, gradients are the same to the bit: the second pass
  /// has the first one's random numbers and autocast, and leaves running statistics alone.
  at::Tensor run(const at::Tensor& x);

  void set_recomputed(bool is_recomputed) { is_recomputed_ = is_recomputed; }

 private:
  bool is_recomputed_ = false;
};

/// Recomputes the blocks inside `model` whose names match one of the patterns ('*' and '?' match
/// dots too, as in "layer1.*"). Throws Error(kRecipe) listing the model's blocks where a pattern
/// matches none.
void recompute(torch::nn::Module& model, const std::vector<std::string>& patterns);

/// Whether this thread is in a block's second pass.
bool is_recomputing();

}  // namespace brim::nn
