// Convolutions that are faster on the CPU than LibTorch's (oneDNN's). With few output pixels they
// are products of matrices: oneDNN puts the weight into a layout of its own before each pass, and
// its gradient back after the backward one; where few pixels share a large weight, that takes
// longer than the convolution. Here patches of the input are laid out as rows (im2col; Chellapilla
// et al., IWFHR 2006), and a channels_last weight is a matrix as it lies. Those of bfloat16 are
// upcast where that is faster (upcast.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace brim::nn {

/// Of each side: height, then width.
struct ConvolutionSteps {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
};

/// Whether fused_convolution() takes these and is faster: x [N, C, H, W] and weight
/// [O, C / groups, KH, KW] on the CPU, whose products are upcast; or without groups, both
/// channels_last and of one format, float32, float64 or (autocast counts) bfloat16, and, over all
/// samples, at most twice as many output pixels as outputs, in bfloat16 a quarter.
bool has_fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                           const ConvolutionSteps& steps, int64_t groups);

/// at::conv2d without a bias: [N, O, OH, OW], channels_last where x and weight are. Needs
/// has_fused_convolution(). Its gradient has none: then c10::NotImplementedError.
at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps, int64_t groups);

// For other operators' passes below autograd, where nothing is cast; fused or LibTorch's. The
// weight is a factor() of x:

struct ConvolutionGradients {
  at::Tensor x, weight;  // undefined where not asked for
};

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                       int64_t groups);
ConvolutionGradients convolution_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                           const at::Tensor& weight, const ConvolutionSteps& steps,
                                           int64_t groups, bool of_x, bool of_weight);

/// For what autograd saves.
std::vector<int64_t> to_list(const ConvolutionSteps& steps);
ConvolutionSteps steps_of(const std::vector<int64_t>& list);

}  // namespace brim::nn
