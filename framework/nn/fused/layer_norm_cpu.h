// The CPU kernels of the operators that fused_layer_norm.cpp defines; tensors have no gaps in
// memory. They throw c10::Error for what has another layout, shape or format.
#pragma once

#include <tuple>

#include "framework/nn/fused/cpu.h"

namespace brim::nn::cpu {

/// The sum (undefined without a branch), its norm, of `type`, and each row's mean and 1 / std.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm(
    const at::Tensor& x, const MaybeTensor& branch, const at::Tensor& weight,
    const at::Tensor& bias, double eps, at::ScalarType type);

/// Gradients of x, of the branch (undefined where there is none, and where x's serves), weight and
/// bias. `gradient` is the norm's, `sum_gradient` what else came to the sum.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& sum_gradient, const at::Tensor& sum,
    const at::Tensor& mean, const at::Tensor& inverse_std, const at::Tensor& weight,
    bool has_branch);

}  // namespace brim::nn::cpu
