// Launches of the kernels of brim::batch_norm and its kin, free of LibTorch so that nvcc compiles
// them in seconds. Tensors lie as rows of channels, [N, H, W, C]; W is float, for double tensors
// double. What is computed is in framework/nn/fused/batch_norm.h. No sum depends on the order in
// which blocks run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

struct NormShape {
  int64_t rows = 0;  // N · H · W
  int32_t channels = 0;
  Format format = Format::kFloat;
};

/// Doubles of memory that the forward and the backward pass need for their sums.
int64_t norm_sums(NormShape shape);

/// [C] of W each, of device memory.
struct NormStatistics {
  void* mean;
  void* inverse_std;
  void* running_mean;  // both move towards the batch's by `momentum`; 0 leaves them alone
  void* running_var;
  double momentum, eps;
};
cudaError_t launch_norm_statistics(NormShape shape, const void* x, double* sums,
                                   NormStatistics statistics, cudaStream_t stream);

/// The parts of the forward and the backward pass between which ranks add up theirs.
/// moments: double [2, C], mean and biased variance; shifts: [C] of W, memory for the pass.
cudaError_t launch_norm_moments(NormShape shape, const void* x, double* sums, void* shifts,
                                double* moments, cudaStream_t stream);

/// Per-channel factors [C] of W.
struct NormFactors {
  const void* mean;
  const void* inverse_std;
  const void* weight;
  const void* bias;
};
/// residual: null for none.
cudaError_t launch_normalise(NormShape shape, const void* x, const void* residual,
                             NormFactors factors, bool relu, void* y, cudaStream_t stream);

struct NormBackward {
  const void* gradient;
  const void* more = nullptr;  // added to the gradient, where y is not null; null for nothing
  const void* x;
  const void* y = nullptr;  // not null: ReLU lets pass where it is positive
  bool relu = false;        // with y null: where y made again from x is
  NormFactors factors;
  double* sums = nullptr;
  void* slopes = nullptr;    // [2, C] of W, memory for the pass
  void* residual = nullptr;  // gradients out; null for none
  void* weight = nullptr;
  void* bias = nullptr;
  void* x_gradient = nullptr;
};
cudaError_t launch_norm_backward(NormShape shape, const NormBackward& tensors, cudaStream_t stream);

/// totals: double [2, C], of each channel the sums of the gradient and of its product with x -
/// mean. Of the gradients out only `residual` is written.
cudaError_t launch_norm_gradient_sums(NormShape shape, const NormBackward& tensors, double* totals,
                                      cudaStream_t stream);
/// x_gradient, by the gradient that the ReLU has let through and by slopes: what is multiplied by
/// x - mean, and what is added.
cudaError_t launch_norm_input_gradient(NormShape shape, const NormBackward& tensors,
                                       cudaStream_t stream);

}  // namespace brim::cuda
