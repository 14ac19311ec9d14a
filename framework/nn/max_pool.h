// A layer that takes the largest value of each window. It has no parameters.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "framework/nn/fused.h"
#include "framework/nn/fused/max_pool.h"

namespace brim::nn {

/// Fused, on a GPU, it takes the form of fused/max_pool.h where that is faster.
class MaxPool2dImpl : public torch::nn::Module, public Fusable {
 public:
  explicit MaxPool2dImpl(const PoolWindow& window) : window_(window) {}

  /// x [N, C, H, W] to [N, C, OH, OW]
  at::Tensor forward(const at::Tensor& x);

 private:
  PoolWindow window_;
};
TORCH_MODULE(MaxPool2d);

}  // namespace brim::nn
