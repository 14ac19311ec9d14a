// A fully connected layer. Parameters and their names are torch::nn::Linear's.
#pragma once

#include <torch/nn/modules/linear.h>

#include "framework/nn/fused.h"

namespace brim::nn {

/// x [..., I], weight [O, I], bias [O] or undefined, to [..., O]; `when`: in a form of
/// fused/linear.h, fused/few_row_linear.h or fused/aligned_linear.h, where there is one for these.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Fused when,
                  bool is_training);

class LinearImpl : public torch::nn::LinearImpl, public Fusable {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  /// [..., inputs] to [..., outputs]
  at::Tensor forward(const at::Tensor& x) {
    return linear(x, weight, bias, fused(), is_training());
  }
};
TORCH_MODULE(Linear);

}  // namespace brim::nn
