// Rows first, then columns, as on the CPU: a thread makes one byte of either. Neighbouring threads
// read neighbouring bytes of the image's rows; the second pass reads what the first one left in the
// cache.
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/resize_images_kernel.h"

namespace brim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWeightBits = 14;

/// The sum of values[k · step] · weights[k], of fixed-point weights, as a byte.
__device__ uint8_t blended(const uint8_t* values, int64_t step, const int32_t* weights, int count) {
  int32_t sum = 1 << (kWeightBits - 1);
  for (int k = 0; k < count; ++k) sum += values[k * step] * weights[k];
  sum >>= kWeightBits;
  return static_cast<uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

__global__ void blend_rows(const ResizedImage* images) {
  const ResizedImage& image = images[blockIdx.z];
  const int byte = blockIdx.x * kThreads + threadIdx.x;
  if (byte >= image.columns * 3) return;
  const int row = blockIdx.y;
  const int32_t* run = image.down.runs + 2 * row;
  const uint8_t* values = image.pixels + run[0] * image.row_bytes + image.left * 3 + byte;
  image.between[static_cast<int64_t>(row) * image.columns * 3 + byte] =
      blended(values, image.row_bytes, image.down.weights + row * image.down.stride, run[1]);
}

__global__ void blend_columns(const ResizedImage* images, ResizedSizes sizes, uint8_t* out) {
  const ResizedImage& image = images[blockIdx.z];
  const int byte = blockIdx.x * kThreads + threadIdx.x;
  if (byte >= sizes.width * 3) return;
  const int column = byte / 3;
  const int64_t row = blockIdx.y;
  const int32_t* run = image.across.runs + 2 * column;
  const uint8_t* values =
      image.between + (row * image.columns + run[0] - image.left) * 3 + (byte - 3 * column);
  out[((static_cast<int64_t>(blockIdx.z) * sizes.height + row) * sizes.width) * 3 + byte] =
      blended(values, 3, image.across.weights + column * image.across.stride, run[1]);
}

}  // namespace

cudaError_t launch_resize_images(const ResizedImage* images, const ResizedSizes& sizes,
                                 uint8_t* out, cudaStream_t stream) {
  const auto grid = [&](int columns) {
    return dim3(static_cast<unsigned>((columns * 3 + kThreads - 1) / kThreads),
                static_cast<unsigned>(sizes.height), static_cast<unsigned>(sizes.images));
  };
  launch(blend_rows, {grid(sizes.columns), kThreads, 0, stream}, images);
  launch(blend_columns, {grid(sizes.width), kThreads, 0, stream}, images, sizes, out);
  return cudaGetLastError();
}

}  // namespace brim::cuda
