// The launch of the normalising kernel, free of LibTorch so that nvcc compiles it in seconds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace brim::cuda {

/// Sizes of a batch of images [batch, area, channels]; none is zero.
struct ImageSizes {
  int64_t batch = 0;
  int64_t area = 0;  // height · width
  int64_t channels = 0;
};

/// Enqueues y = x · scale[c] + bias[c] from `pixels` [batch, area, channels] to `images`, laid out
/// the same way (channels_last) or as [batch, channels, area]. All are device pointers, `pixels`
/// and `images` aligned as LibTorch aligns tensors. Rounds as the CPU's kernel does, to the bit.
cudaError_t launch_normalize_images(const uint8_t* pixels, const float* scale, const float* bias,
                                    float* images, ImageSizes sizes, bool channels_last,
                                    cudaStream_t stream);

}  // namespace brim::cuda
