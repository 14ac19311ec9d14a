// The CPU kernels of the operators that batch_norm.cpp defines; x and what is like it lie in
// memory as [N, H, W, C]. They throw c10::Error for what has another layout, shape or format.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "framework/nn/fused/cpu.h"

namespace brim::nn::cpu {

/// The result, and the batch's mean and 1 / std [C].
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& x, const MaybeTensor& residual, const at::Tensor& weight,
    const at::Tensor& bias, at::Tensor& running_mean, at::Tensor& running_var, double momentum,
    double eps, bool relu);

/// Gradients of x, of the residual (undefined where there is none), weight and bias; the result's
/// is gradient + more. `y`, the result, is needed where there are both a residual and ReLU.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& more, const at::Tensor& x, const MaybeTensor& y,
    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
    const at::Tensor& inverse_std, bool relu, bool has_residual);

// The same in parts, between which ranks add up theirs.

/// Mean and biased variance of each channel, double [2, C].
at::Tensor batch_norm_moments(const at::Tensor& x);

/// Of each channel the sums of the gradient and of its product with x - mean, double [2, C], and
/// the gradient that the ReLU lets through, undefined without one. With `y` ReLU lets pass where
/// that is positive, else where y made again from x is.
std::tuple<at::Tensor, at::Tensor> batch_norm_backward_sums(
    const at::Tensor& gradient, const at::Tensor& x, const MaybeTensor& y, const at::Tensor& weight,
    const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_std, bool relu);

/// weight · inverse_std · gradient + slopes[0] · (x - mean) + slopes[1]; slopes are [2, C].
at::Tensor batch_norm_backward_apply(const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const at::Tensor& mean,
                                     const at::Tensor& inverse_std, const at::Tensor& slopes);

/// What batch_norm() gives, by moments that are known.
at::Tensor batch_norm_apply(const at::Tensor& x, const MaybeTensor& residual,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& inverse_std, bool relu);

}  // namespace brim::nn::cpu
