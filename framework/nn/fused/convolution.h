// Convolutions on the CPU in other forms than LibTorch's (oneDNN's). As a product of matrices:
// oneDNN puts the weight into a layout of its own before each pass, and its gradient back after the
// backward one; where few pixels share a large weight, that takes longer than the convolution. Here
// patches of the input are laid out as rows (im2col; Chellapilla et al., IWFHR 2006), and a
// channels_last weight is a matrix as it lies. In float32, a CPU with multiplies_float_tiles()
// (block_product_cpu.h) takes patches from where they lie (implicit_gemm_cpu.h). With only the
// weight's gradient as a product, where the kernel for that is faster than oneDNN's. And upcast,
// where the CPU multiplies float32 faster than bfloat16 (upcast.h).
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

/// By LibTorch's kernels; as products of matrices; or by LibTorch's but for the weight's gradient.
enum class ConvolutionForm { kDirect, kProduct, kWeightGradient };

/// Whether the product takes x [N, C, H, W] and weight [O, C, KH, KW]: on the CPU, both
/// channels_last and of one format, float32, float64 or (autocast counts) bfloat16, and patches
/// that are x itself, take no more than four times the weight's memory, or are read where they lie.
bool has_convolution_product(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps, int64_t groups);

/// Whether kWeightGradient takes them: bfloat16 (autocast counts) that the product takes over x's
/// pixels as they lie, on a CPU that has such a kernel (weight_gradient_cpu.h).
bool has_weight_gradient(const at::Tensor& x, const at::Tensor& weight,
                         const ConvolutionSteps& steps, int64_t groups);

/// Whether x and weight, of any layout and groups, are of a format whose products are upcast.
bool has_upcast_convolution(const at::Tensor& x, const at::Tensor& weight);

/// at::conv2d without a bias: [N, O, OH, OW], channels_last where x and weight are, upcast where
/// that is possible. Its gradient has none: then c10::NotImplementedError. kProduct needs
/// has_convolution_product(), kWeightGradient has_weight_gradient().
at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps, int64_t groups, ConvolutionForm form);

/// A convolution of what is added to its input further on.
struct Branch {
  at::Tensor y;  // the convolution
  at::Tensor x;  // its input, for whatever else reads that
};

/// Whether fused_branch() takes them, where x's gradient is asked for: the product does, over x's
/// pixels as they lie, and there is no kWeightGradient, which is faster.
bool fits_branch(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps);

/// fused_convolution() as a product. In backward the product is added to the gradient of the
/// result's x where that lies, which saves an addition of its own. Needs fits_branch().
Branch fused_branch(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps);

// For other operators' passes below autograd, where nothing is cast. The weight is a factor() of x:

struct ConvolutionGradients {
  at::Tensor x, weight;  // undefined where not asked for
};

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                       int64_t groups, ConvolutionForm form);
ConvolutionGradients convolution_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                           const at::Tensor& weight, const ConvolutionSteps& steps,
                                           int64_t groups, ConvolutionForm form, bool of_x,
                                           bool of_weight);

/// For what autograd saves.
std::vector<int64_t> to_list(const ConvolutionSteps& steps);
ConvolutionSteps steps_of(const std::vector<int64_t>& list);

}  // namespace brim::nn
