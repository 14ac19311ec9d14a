// The launch of the kernel that normalises and changes a batch of images, free of LibTorch so that
// nvcc compiles it in seconds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "framework/data/augment/image_change.h"

namespace brim::cuda {

/// Sizes of a batch of images [count, height, width, channels]; none is zero, and an image has
/// fewer than 2^31 values.
struct ImageSizes {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

enum class FloatType { kFloat, kBFloat16, kHalf };

/// What the kernel reads: device pointers, `pixels` aligned to 4 bytes.
struct ImageInputs {
  const uint8_t* pixels;             // [count, height, width, channels]
  const float* scale;                // [channels]
  const float* bias;                 // [channels]
  const data::ImageChange* changes;  // [count], or null for none
};

/// Enqueues y = x · scale[c] + bias[c], the changes and rounding to `type`, from the inputs to
/// `images`, laid out the same way (channels_last) or as [count, channels, height, width] and
/// aligned as LibTorch aligns tensors. Gives what the CPU's kernel gives, to the bit.
cudaError_t launch_transform_images(const ImageInputs& inputs, ImageSizes sizes, bool channels_last,
                                    FloatType type, void* images, cudaStream_t stream);

}  // namespace brim::cuda
