// Depthwise convolutions, each channel of the images with a kernel of its own, on a CPU. Of their
// gradients, oneDNN computes the weight's, and with a stride x's too, ten to thirty times slower
// than the outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused.h"
#include "framework/nn/fused/convolution.h"

namespace brim::nn {

/// Whether there is a fused form: channels_last x [N, C, H, W] on the CPU, float32, float64 or
/// (autocast counts) bfloat16; a weight [C, 1, KH, KW] and a bias, if any, of opmath_type(x), KH at
/// most 7 and KW 3, 5 or 7, padding smaller than these, and no dilation.
bool has_fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                     const at::Tensor& bias, const ConvolutionSteps& steps,
                                     int64_t groups);

/// at::conv2d with C groups: [N, C, OH, OW], channels_last. Needs
/// has_fused_depthwise_convolution(). Weights are not rounded. Its gradient has none: then
/// c10::NotImplementedError.
at::Tensor fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias, const ConvolutionSteps& steps);

/// Whether to take it now. `is_training`: of the module that calls (measured_forms.h).
bool takes_fused_depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias, const ConvolutionSteps& steps,
                                       int64_t groups, Fused when, bool is_training);

}  // namespace brim::nn
