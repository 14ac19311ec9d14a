// The largest value of each window of an image, on a GPU. For backward a byte a result is kept, the
// number of the largest value's pixel in its window, where LibTorch keeps an int64, and a gradient
// is gathered from the windows that hold a pixel, where LibTorch scatters it.
//
// Declared here are the operators brim::max_pool and brim::max_pool_backward, whose kernels are in
// framework/cuda/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace brim::nn {

struct PoolWindow {
  int64_t kernel = 2, stride = 2, padding = 0;  // of both sides
};

/// Whether there is a fused form: x [N, C, H, W] is on a GPU in channels_last and not empty, and
/// windows of up to 16 pixels a side, no further apart than they are wide, fit in.
bool has_fused_max_pool(const at::Tensor& x, const PoolWindow& window);

/// at::max_pool2d(). Not-a-number is the largest value. Its gradient has none: then
/// c10::NotImplementedError.
at::Tensor fused_max_pool(const at::Tensor& x, const PoolWindow& window);

}  // namespace brim::nn
