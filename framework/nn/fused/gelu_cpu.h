// The CPU kernels of the operators that fused_gelu.cpp defines; tensors have no gaps in memory.
// They throw c10::Error for what has another layout, shape or format.
#pragma once

#include <tuple>

#include "framework/nn/fused/cpu.h"

namespace brim::nn::cpu {

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, bool tanh);

/// Gradients of x and bias.
std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& gradient,
                                                      const at::Tensor& x, const at::Tensor& bias,
                                                      bool tanh);

}  // namespace brim::nn::cpu
