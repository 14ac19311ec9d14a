// Launches of the kernels of brim::cross_entropy and its backward, free of LibTorch so that nvcc
// compiles them in seconds. W is float, for double logits double. What is computed is in
// framework/nn/fused/cross_entropy.h. Nothing depends on the order in which blocks run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

/// Logits [rows, classes], `stride` values from one row to the next, and what they are to be; all
/// of it device memory. A label that is neither a class nor ignore_index fails an assertion.
struct CrossEntropyInputs {
  Format format = Format::kFloat;
  const void* logits = nullptr;
  int64_t rows = 0, classes = 0, stride = 0;
  const int64_t* labels = nullptr;          // [rows]
  const int64_t* partner_labels = nullptr;  // [rows], or null
  const float* label_shares = nullptr;      // [rows], or null with them
  int64_t ignore_index = 0;
  double smoothing = 0;
};

/// losses: [rows], memory for the pass. kept: [2, rows] of W, for backward; loss: one W; share: one
/// W, 1 / rows that count.
cudaError_t launch_cross_entropy(const CrossEntropyInputs& inputs, double* losses, void* kept,
                                 void* loss, void* share, cudaStream_t stream);

/// gradient: one W, the loss's. logits_gradient: [rows, classes], `gradient_stride` values from one
/// row to the next.
cudaError_t launch_cross_entropy_backward(const CrossEntropyInputs& inputs, const void* kept,
                                          const void* share, const void* gradient,
                                          void* logits_gradient, int64_t gradient_stride,
                                          cudaStream_t stream);

}  // namespace brim::cuda
