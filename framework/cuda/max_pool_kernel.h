// Launches of the kernels of brim::max_pool and its backward, free of LibTorch so that nvcc
// compiles them in seconds. Tensors lie as rows of channels, [N, H, W, C]. What is computed is in
// framework/nn/fused/max_pool.h. Nothing depends on the order in which blocks run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

/// Of images [images, height, width, channels], the largest of each window of kernel x kernel
/// pixels. There are fewer than 2^31 rows of pixels, and fewer than 2^31 values in each.
struct PoolShape {
  int32_t images = 0, height = 0, width = 0, channels = 0;
  int32_t out_height = 0, out_width = 0;
  int32_t kernel = 0, stride = 0, padding = 0;  // kernel · kernel is at most 256
  Format format = Format::kFloat;
};

/// y, places: [images, out_height, out_width, channels]; a place is the number of the largest
/// value's pixel in its window.
cudaError_t launch_max_pool(const PoolShape& shape, const void* x, void* y, uint8_t* places,
                            cudaStream_t stream);

/// gradient: y's. x_gradient: [images, height, width, channels].
cudaError_t launch_max_pool_backward(const PoolShape& shape, const void* gradient,
                                     const uint8_t* places, void* x_gradient, cudaStream_t stream);

}  // namespace brim::cuda
