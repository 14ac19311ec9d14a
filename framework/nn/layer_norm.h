// Layer normalisation over the last dimension, with the addition of a residual branch that comes
// before it. Parameters and their names are torch::nn::LayerNorm's.
#pragma once

#include <torch/nn/modules/normalization.h>

#include "framework/nn/fused.h"
#include "framework/nn/fused/layer_norm.h"

namespace brim::nn {

/// Fused, it makes fewer passes over memory and under autocast gives its norm in the lower
/// precision (fused/layer_norm.h).
class LayerNormImpl : public torch::nn::LayerNormImpl, public Fusable {
 public:
  using torch::nn::LayerNormImpl::LayerNormImpl;

  /// x [..., C]
  at::Tensor forward(const at::Tensor& x) { return layer_norm(x, state(), fused(), is_training()); }
  /// Of x + branch, like each other, and that sum.
  AddedNorm forward_add(const at::Tensor& x, const at::Tensor& branch) {
    return add_layer_norm(x, branch, state(), fused(), is_training());
  }

 private:
  LayerNormState state() const { return {weight, bias, options.eps()}; }
};
TORCH_MODULE(LayerNorm);

}  // namespace brim::nn
