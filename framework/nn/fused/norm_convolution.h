// A convolution of relu(batch norm(x)) that keeps x alone for backward, where both operators by
// themselves keep x and the convolution's input: that is computed again from x, in one pass over
// memory (as Pleiss et al., "Memory-Efficient Implementation of DenseNets", 2017, do).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "framework/nn/fused/batch_norm.h"
#include "framework/nn/fused/convolution.h"

namespace brim::nn {

/// Whether x and the weight have formats for it: x is what the convolution computes in, on a CPU.
/// The norm needs has_fused_batch_norm() besides. On a GPU, where a step is bound by its passes
/// over memory, the passes that make the inputs again took 1.3 of ResNet-50's 48 ms (batch 256 in
/// bf16, H100).
bool fits_norm_convolution(const at::Tensor& x, const at::Tensor& weight);

/// The convolution, without a bias, of fused_batch_norm(x, {}, norm, momentum, relu): the same
/// results and gradients. The gradient has none: then c10::NotImplementedError.
at::Tensor fused_norm_convolution(const at::Tensor& x, const BatchNormState& norm, double momentum,
                                  const at::Tensor& weight, const ConvolutionSteps& steps,
                                  int64_t groups, ConvolutionForm form);

}  // namespace brim::nn
