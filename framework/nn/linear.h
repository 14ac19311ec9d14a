// A fully connected layer. Parameters and their names are torch::nn::Linear's.
#pragma once

#include <torch/nn/modules/linear.h>

#include "framework/nn/fused.h"

namespace brim::nn {

/// x [..., I], weight [O, I], bias [O] or undefined, to [..., O]. `fused`: in the form of
/// fused/linear.h where that is faster.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  bool fused);

class LinearImpl : public torch::nn::LinearImpl, public Fusable {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  /// [..., inputs] to [..., outputs]
  at::Tensor forward(const at::Tensor& x) { return linear(x, weight, bias, is_fused()); }
};
TORCH_MODULE(Linear);

}  // namespace brim::nn
