// GELU and the bias before it in one pass forward and one backward, which also sums up the bias's
// gradient. Kept for backward is what came before the bias. Arithmetic is float32 (for float64
// float64).
//
// Defined here are the operators brim::bias_gelu and brim::bias_gelu_backward with their CPU
// kernels; framework/cuda/ adds the CUDA kernels.
#pragma once

#include "framework/nn/linear.h"

namespace brim::nn {

/// Φ by the error function, or LibTorch's approximation "tanh".
enum class Gelu { kErf, kTanh };

/// Whether there is a fused form: x [..., C] is not empty and of float32, bfloat16, float64 or on
/// CUDA float16, with a bias [C] of float32, for float64 float64.
bool has_fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias);

/// gelu(x + bias), like x. The gradient has no gradient of its own.
at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form);

/// gelu(product + bias) of a matrix product [..., C] that is still without its bias [C].
/// `is_training`: of the module that calls (measured_forms.h).
at::Tensor bias_gelu(const at::Tensor& product, const at::Tensor& bias, Gelu form, Fused when,
                     bool is_training);

/// gelu(layer(x)), by the error function. Fused, the product and what follows it apart, the latter
/// fused.
at::Tensor linear_gelu(const Linear& layer, const at::Tensor& x, Fused when);

}  // namespace brim::nn
