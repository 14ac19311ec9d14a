// Batch normalisation, the residual that is added to it and ReLU, in the fewest passes over memory:
// forward reads x twice and writes once, backward reads x and the gradient twice and writes once.
// Kept for backward are x, two numbers a channel and, with a residual, the result, which the next
// layer keeps anyway. Statistics are summed in float64 about a value of the channel's own, in an
// order that does not depend on the number of threads.
//
// Defined here are the operators brim::batch_norm, its backward, and their parts, with their CPU
// kernels; framework/cuda/ adds the CUDA kernels.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Per-channel parameters and running statistics, [C] each.
struct BatchNormState {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var;
  double eps = 1e-5;
};

/// Whether there is a fused form for x [N, C, H, W]: it lies in memory as [N, H, W, C], it is not
/// empty, and its format is float32, bfloat16 (CUDA: float16 too) with float32 parameters, or
/// float64 with float64 ones. A residual must be like x.
bool has_fused_batch_norm(const at::Tensor& x, const at::Tensor& residual,
                          const BatchNormState& state);

/// max(0, norm(x) + residual), without the ReLU where relu is false; the residual may be undefined.
/// Normalises by the batch's statistics and moves the running ones by `momentum` towards them, the
/// variance unbiased; momentum 0 leaves them alone. More than one value a channel is needed. The
/// gradient has no gradient of its own.
at::Tensor fused_batch_norm(const at::Tensor& x, const at::Tensor& residual,
                            const BatchNormState& state, double momentum, bool relu);

/// y for one of its readers, such as a residual's addition. Where y is fused_batch_norm()'s result,
/// that reader's gradient is added to the others' as the norm's backward pass reads both, not
/// before in a pass of its own; hooks on y then see it without. Elsewhere y itself.
at::Tensor for_other_reader(const at::Tensor& y);

/// The same by the running statistics; knows no gradient.
at::Tensor fused_batch_norm_inference(const at::Tensor& x, const at::Tensor& residual,
                                      const BatchNormState& state, bool relu);

// For other operators' passes below autograd, the norm with a ReLU where nothing else is said:

struct NormMoments {
  at::Tensor mean, inverse_std;  // [C], of the batch
};
struct NormedBatch {
  at::Tensor y;  // relu(norm(x)), like x
  NormMoments moments;
};
struct NormGradients {
  at::Tensor x, weight, bias;
};

/// As fused_batch_norm() does.
NormedBatch norm_batch(const at::Tensor& x, const BatchNormState& state, double momentum);
/// The y that norm_batch() gave, to the bit.
at::Tensor norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const NormMoments& moments);
/// max(0, norm(x) + residual) by moments that are known, without the ReLU where relu is false; the
/// residual may be undefined.
at::Tensor norm_by(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                   const at::Tensor& bias, const NormMoments& moments, bool relu);
/// Mean and biased variance of each channel, double [2, C].
at::Tensor own_moments(const at::Tensor& x);

struct NormSums {
  // double [2, C]: of the gradient, and of its product with x - mean
  at::Tensor sums;
  at::Tensor masked;  // the gradient that the ReLU lets through, which is the residual's
};
/// `y`: norm_by()'s result where it had a residual and a ReLU, else undefined.
NormSums own_gradient_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const NormMoments& moments, bool relu);
/// x's: weight · inverse_std · masked + slopes[0] · (x - mean) + slopes[1]; slopes [2, C].
at::Tensor norm_input_gradient(const at::Tensor& masked, const at::Tensor& x,
                               const at::Tensor& weight, const NormMoments& moments,
                               const at::Tensor& slopes);

NormGradients norm_gradients(const at::Tensor& gradient, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const NormMoments& moments);

}  // namespace brim::nn
