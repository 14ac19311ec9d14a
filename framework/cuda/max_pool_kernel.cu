// A thread makes a pack of channels of one pixel: forward of an output's, backward of an input's,
// which reads the windows that hold it and so needs no atomic additions.
#include <algorithm>
#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/max_pool_kernel.h"
#include "framework/cuda/values.cuh"

namespace brim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;

/// Calls f(image, y, x, channel) for the packs of this thread's rows of images, a block a row.
template <int N, class F>
__device__ void for_each_pack(int images, int height, int width, int channels, const F& f) {
  const int packs = channels / N;
  for (int row = blockIdx.x; row < images * height; row += gridDim.x) {
    const int image = row / height;
    const int y = row - image * height;
    for (int i = threadIdx.x; i < width * packs; i += kThreads) {
      const int x = i / packs;
      f(image, y, x, (i - x * packs) * N);
    }
  }
}

/// Of a value in [images, height, width, channels].
__device__ int64_t offset_of(int image, int y, int x, int channel, int height, int width,
                             int channels) {
  return ((static_cast<int64_t>(image) * height + y) * width + x) * channels + channel;
}

template <class T, int N>
__global__ void max_pool(PoolShape shape, const T* in, T* out, uint8_t* places) {
  for_each_pack<N>(shape.images, shape.out_height, shape.out_width, shape.channels,
                   [&](int image, int out_y, int out_x, int channel) {
                     const int top = out_y * shape.stride - shape.padding;
                     const int left = out_x * shape.stride - shape.padding;
                     Pack<T, N> largest = {};
                     Pack<uint8_t, N> place = {};
                     bool is_first = true;
                     for (int ky = 0; ky < shape.kernel; ++ky) {
                       if (top + ky < 0 || top + ky >= shape.height) continue;
                       for (int kx = 0; kx < shape.kernel; ++kx) {
                         if (left + kx < 0 || left + kx >= shape.width) continue;
                         const auto values =
                             load<T, N>(in + offset_of(image, top + ky, left + kx, channel,
                                                       shape.height, shape.width, shape.channels));
#pragma unroll
                         for (int i = 0; i < N; ++i) {
                           const Wide<T> value = wide(values.values[i]);
                           // Not-a-number is the largest, as LibTorch has it.
                           if (is_first || value > wide(largest.values[i]) || value != value) {
                             largest.values[i] = values.values[i];
                             place.values[i] = static_cast<uint8_t>(ky * shape.kernel + kx);
                           }
                         }
                         is_first = false;
                       }
                     }
                     const int64_t offset =
                         offset_of(image, out_y, out_x, channel, shape.out_height, shape.out_width,
                                   shape.channels);
                     store(largest, out + offset);
                     store(place, places + offset);
                   });
}

/// The first window that holds a pixel, of those along one side.
__device__ int first_window(int pixel, const PoolShape& shape) {
  const int from = pixel + shape.padding - shape.kernel + 1;
  return from <= 0 ? 0 : (from + shape.stride - 1) / shape.stride;
}

template <class T, int N>
__global__ void max_pool_gradient(PoolShape shape, const T* gradient, const uint8_t* places,
                                  T* out) {
  for_each_pack<N>(shape.images, shape.height, shape.width, shape.channels,
                   [&](int image, int own_y, int own_x, int channel) {
                     Wide<T> sums[N] = {};
                     for (int y = first_window(own_y, shape); y < shape.out_height; ++y) {
                       const int ky = own_y + shape.padding - y * shape.stride;
                       if (ky < 0) break;
                       for (int x = first_window(own_x, shape); x < shape.out_width; ++x) {
                         const int kx = own_x + shape.padding - x * shape.stride;
                         if (kx < 0) break;
                         const int64_t offset = offset_of(image, y, x, channel, shape.out_height,
                                                          shape.out_width, shape.channels);
                         const auto place = load<uint8_t, N>(places + offset);
                         const auto of_window = load<T, N>(gradient + offset);
                         const int own = ky * shape.kernel + kx;
#pragma unroll
                         for (int i = 0; i < N; ++i) {
                           if (place.values[i] == own) sums[i] += wide(of_window.values[i]);
                         }
                       }
                     }
                     Pack<T, N> result;
#pragma unroll
                     for (int i = 0; i < N; ++i) narrow(sums[i], result.values[i]);
                     store(result, out + offset_of(image, own_y, own_x, channel, shape.height,
                                                   shape.width, shape.channels));
                   });
}

unsigned blocks_for(int64_t rows) {
  return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, kMaxBlocks));
}

}  // namespace

cudaError_t launch_max_pool(const PoolShape& shape, const void* x, void* y, uint8_t* places,
                            cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](auto pack) {
      launch(max_pool<T, decltype(pack)::value>,
             {blocks_for(int64_t{shape.images} * shape.out_height), kThreads, 0, stream}, shape,
             static_cast<const T*>(x), static_cast<T*>(y), places);
    };
    packs<T>(shape.channels, {x, y, places}) ? run(Number<kPack<T>>()) : run(Number<1>());
  });
}

cudaError_t launch_max_pool_backward(const PoolShape& shape, const void* gradient,
                                     const uint8_t* places, void* x_gradient, cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](auto pack) {
      launch(max_pool_gradient<T, decltype(pack)::value>,
             {blocks_for(int64_t{shape.images} * shape.height), kThreads, 0, stream}, shape,
             static_cast<const T*>(gradient), places, static_cast<T*>(x_gradient));
    };
    packs<T>(shape.channels, {gradient, x_gradient, places}) ? run(Number<kPack<T>>())
                                                             : run(Number<1>());
  });
}

}  // namespace brim::cuda
