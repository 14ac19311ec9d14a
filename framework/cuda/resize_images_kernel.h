// Launches of the kernels that resize decoded images, free of LibTorch so that nvcc compiles them
// in seconds. They give the bits of framework/data/image/resize.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace brim::cuda {

/// One axis of an image, on the device: device::AxisWeights.
struct DeviceAxis {
  const int32_t* runs;
  const int32_t* weights;
  int32_t stride;
};

/// An image on the device, RGB, and how it is resized.
struct ResizedImage {
  const uint8_t* pixels;
  int64_t row_bytes;
  DeviceAxis down, across;
  int32_t left, columns;  // columns that `across` reads
  uint8_t* between;       // scratch memory: [height of the result, columns, 3]
};

struct ResizedSizes {
  int32_t images = 0;             // at most 65,535
  int32_t height = 0, width = 0;  // of the results; the height is at most 65,535
  int32_t columns = 0;            // the most that any image has
};

/// images: on the device. out: [images, height, width, 3].
cudaError_t launch_resize_images(const ResizedImage* images, const ResizedSizes& sizes,
                                 uint8_t* out, cudaStream_t stream);

}  // namespace brim::cuda
