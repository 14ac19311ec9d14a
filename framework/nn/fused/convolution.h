// Convolutions of few output pixels, as products of matrices. LibTorch's (oneDNN's) on the CPU put
// the weight into a layout of their own before each pass, and its gradient back after the backward
// one; where few pixels share a large weight, that takes longer than the convolution. Here patches
// of the input are laid out as rows (im2col; Chellapilla et al., IWFHR 2006), and a channels_last
// weight is a matrix as it lies.
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
/// [O, C, KH, KW], both channels_last on the CPU and of one format, float32, float64 or (autocast
/// counts) bfloat16, and, over all samples, at most twice as many output pixels as outputs, in
/// bfloat16 a quarter.
bool has_fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                           const ConvolutionSteps& steps);

/// at::conv2d without a bias and groups: [N, O, OH, OW], always channels_last. Needs
/// has_fused_convolution(). Its gradient has none: then c10::NotImplementedError.
at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps);

// For other operators' passes below autograd, where nothing is cast; fused or LibTorch's:

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
