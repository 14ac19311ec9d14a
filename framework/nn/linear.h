// A fully connected layer. Parameters and their names are torch::nn::Linear's.
#pragma once

#include <torch/nn/modules/linear.h>

#include "framework/nn/fused.h"

namespace brim::nn {

/// LibTorch's; products of float32 (fused/linear.h); or by blocks (fused/block_linear.h).
enum class LinearForm { kPlain, kUpcast, kBlocks };

/// The form that is taken for x [..., I], weight [O, I], the transpose of one [I, O] too, and bias
/// [O] or undefined.
LinearForm linear_form(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       Fused when, bool is_training);

/// x to [..., O] in that form.
at::Tensor linear_in(LinearForm form, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias);

/// The same in the form that is taken; on a GPU also fused/aligned_linear.h's.
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
