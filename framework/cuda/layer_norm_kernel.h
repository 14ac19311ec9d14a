// Launches of the kernels of brim::layer_norm and its backward, free of LibTorch so that nvcc
// compiles them in seconds. Tensors are rows of channels without gaps; W is float, for double
// tensors double. What is computed is in framework/nn/fused/layer_norm.h. No sum depends on the
// order in which blocks run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

struct LayerNormShape {
  int64_t rows = 0;
  int32_t channels = 0;
  Format x = Format::kFloat;     // of x, the sum and their gradients
  Format norm = Format::kFloat;  // of the branch, the norm and their gradients: as x, or with x
                                 // in float bfloat16 or float16
};

struct LayerNormForward {
  const void* x;
  const void* branch;  // null: the norm is x's own, and sum is not written
  const void* weight;  // [C] of W
  const void* bias;    // [C] of W
  double eps;
  void* sum;
  void* mean;         // [rows] of W
  void* inverse_std;  // [rows] of W
  void* norm;
};
cudaError_t launch_layer_norm(LayerNormShape shape, const LayerNormForward& tensors,
                              cudaStream_t stream);

/// Doubles of memory that the backward pass needs for its sums.
int64_t layer_norm_sums(LayerNormShape shape);

struct LayerNormBackward {
  const void* gradient;      // the norm's
  const void* sum_gradient;  // what else came to the sum, or null
  const void* sum;
  const void* mean;
  const void* inverse_std;
  const void* weight;
  double* sums;           // memory for the pass
  void* x_gradient;       // out
  void* branch_gradient;  // out: the same in the norm's format; null where that serves
  void* weight_gradient;  // out, [C] of W
  void* bias_gradient;    // out, [C] of W
};
cudaError_t launch_layer_norm_backward(LayerNormShape shape, const LayerNormBackward& tensors,
                                       cudaStream_t stream);

}  // namespace brim::cuda
