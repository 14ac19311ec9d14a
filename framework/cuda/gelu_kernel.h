// Launches of the kernels of brim::bias_gelu and its backward, free of LibTorch so that nvcc
// compiles them in seconds. Tensors are rows of channels; W is float, for double tensors double.
// What is computed is in framework/nn/fused/gelu.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

struct GeluShape {
  int64_t rows = 0;
  int32_t channels = 0;
  Format format = Format::kFloat;
  bool tanh = false;  // else by the error function
};

/// bias: [C] of W.
cudaError_t launch_bias_gelu(GeluShape shape, const void* x, const void* bias, void* y,
                             cudaStream_t stream);

/// Doubles of memory that the backward pass needs for its sums.
int64_t gelu_sums(GeluShape shape);

struct GeluBackward {
  const void* gradient;
  const void* x;
  const void* bias;     // [C] of W
  double* sums;         // memory for the pass
  void* x_gradient;     // out
  void* bias_gradient;  // out, [C] of W
};
cudaError_t launch_bias_gelu_backward(GeluShape shape, const GeluBackward& tensors,
                                      cudaStream_t stream);

}  // namespace brim::cuda
