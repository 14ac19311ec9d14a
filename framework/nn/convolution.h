// A convolution over images. Parameters and their names are torch::nn::Conv2d's.
#pragma once

#include <torch/nn/modules/conv.h>

#include <optional>

#include "framework/nn/batch_norm.h"
#include "framework/nn/fused.h"
#include "framework/nn/fused/convolution.h"

namespace brim::nn {

/// Fused, on the CPU, it takes the form of fused/depthwise.h where that fits, a linear layer's
/// where its kernel moves by its own size (ViT's patches), and without a bias those of
/// fused/convolution.h: a product of matrices, or float32's for bfloat16 that the CPU has no
/// instructions for.
class Conv2dImpl : public torch::nn::Conv2dImpl, public Fusable {
 public:
  using torch::nn::Conv2dImpl::Conv2dImpl;

  /// x [N, C, H, W] to [N, O, OH, OW]
  at::Tensor forward(const at::Tensor& x);
  /// forward(x), and x for what else reads it, such as a residual's addition: fused, this
  /// convolution adds to x's gradient from there, or on a GPU the batch norm that gave x does.
  Branch forward_branch(const at::Tensor& x);
  /// forward(norm->forward_relu(x)), to the bit. Fused, in training, the input of this convolution
  /// is not kept but computed again from x in backward (fused/norm_convolution.h).
  at::Tensor forward_after(BatchNorm2d& norm, const at::Tensor& x);

 private:
  /// nullopt where no fused form takes the options.
  std::optional<ConvolutionSteps> steps() const;
  bool takes_depthwise(const at::Tensor& x, const ConvolutionSteps& steps) const;
  bool takes_patches(const at::Tensor& x, const ConvolutionSteps& steps) const;
  /// Of this convolution over what is like x; `is_branch`: by forward_branch().
  ConvolutionForm form(const at::Tensor& x, const ConvolutionSteps& steps, bool is_branch) const;
};
TORCH_MODULE(Conv2d);

}  // namespace brim::nn
