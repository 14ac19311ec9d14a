// Normalising a batch is bound by memory: one byte in, two or four out. So what counts is that a
// warp's stores are whole lines: every thread makes four neighbouring values of the output and
// stores them at once, next to its neighbour's. Images that no change touches load words too; the
// others load bytes, which neighbours share in the cache. A block works on one image at a time, so
// its change is read once and taken by all threads alike.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/transform_images_kernel.h"

namespace brim::cuda {
namespace {

using data::ImageChange;
using data::PixelRange;

constexpr int kThreads = 256;
constexpr int64_t kMaxImages = 65535;  // blocks in y; beyond that, blocks take several turns

/// Multiplies and adds without fusing, as x86 code for any processor does.
__device__ float normalized(uint32_t pixel, float scale, float bias) {
  return __fadd_rn(__fmul_rn(static_cast<float>(pixel), scale), bias);
}

__device__ float mixed(float own, float share, float other) {
  return __fadd_rn(__fmul_rn(own, share), __fmul_rn(other, __fsub_rn(1.0F, share)));
}

template <class T>
__device__ T rounded(float value);
template <>
__device__ float rounded(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 rounded(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half rounded(float value) {
  return __float2half_rn(value);
}

/// Four values that are stored at once.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

/// A batch in 32 bits where it counts.
struct Batch {
  const uint8_t* pixels;
  const float* scale;
  const float* bias;
  const ImageChange* changes;
  int64_t count;
  uint32_t height, width, channels;

  __device__ uint32_t area() const { return height * width; }
  __device__ const uint8_t* image(int64_t index) const {
    return pixels + index * (static_cast<int64_t>(area()) * channels);
  }
  __device__ ImageChange change(int64_t index) const {
    return changes == nullptr ? ImageChange{} : changes[index];
  }
};

__device__ bool contains(const PixelRange& range, uint32_t y, uint32_t x) {
  const auto row = static_cast<int32_t>(y), column = static_cast<int32_t>(x);
  return row >= range.top && row < range.bottom && column >= range.left && column < range.right;
}

__device__ bool is_empty(const PixelRange& range) {
  return range.top >= range.bottom || range.left >= range.right;
}

__device__ bool leaves_as_is(const ImageChange& change) {
  return change.flip == 0 && is_empty(change.erased) && is_empty(change.mixed);
}

/// An image's own value at a place, mirrored and erased.
__device__ float own_value(const Batch& batch, const uint8_t* image, const ImageChange& change,
                           uint32_t y, uint32_t x, uint32_t c) {
  if (contains(change.erased, y, x)) return 0.0F;
  const uint32_t from = change.flip != 0 ? batch.width - 1 - x : x;
  return normalized(image[(y * batch.width + from) * batch.channels + c], batch.scale[c],
                    batch.bias[c]);
}

/// One image of the batch with its change and its partner.
struct Source {
  const uint8_t* image;
  ImageChange change;
  const uint8_t* partner;  // null: nothing is mixed
  ImageChange partner_change;
};

__device__ Source source_of(const Batch& batch, int64_t index) {
  Source source = {batch.image(index), batch.change(index), nullptr, ImageChange{}};
  const int32_t partner = source.change.partner;
  if (!is_empty(source.change.mixed) && partner >= 0 && partner < batch.count) {
    source.partner = batch.image(partner);
    source.partner_change = batch.change(partner);
  }
  return source;
}

__device__ float value_at(const Batch& batch, const Source& source, uint32_t y, uint32_t x,
                          uint32_t c) {
  const float own = own_value(batch, source.image, source.change, y, x, c);
  if (source.partner == nullptr || !contains(source.change.mixed, y, x)) return own;
  return mixed(own, source.change.own,
               own_value(batch, source.partner, source.partner_change, y, x, c));
}

__device__ uint32_t first_index() { return blockIdx.x * kThreads + threadIdx.x; }

/// Same layout in and out; kStep values a thread, 4 where an image's values are a multiple of it.
template <class T, int kStep>
__global__ void augment_interleaved(Batch batch, T* images) {
  const uint32_t values = batch.area() * batch.channels;
  const uint32_t i = first_index() * kStep;
  if (i >= values) return;
  uint32_t x[kStep], y[kStep], c[kStep];
  c[0] = i % batch.channels;
  x[0] = i / batch.channels % batch.width;
  y[0] = i / batch.channels / batch.width;
  for (int k = 1; k < kStep; ++k) {
    const bool next_pixel = c[k - 1] + 1 == batch.channels;
    const bool next_row = next_pixel && x[k - 1] + 1 == batch.width;
    c[k] = next_pixel ? 0 : c[k - 1] + 1;
    x[k] = next_row ? 0 : next_pixel ? x[k - 1] + 1 : x[k - 1];
    y[k] = next_row ? y[k - 1] + 1 : y[k - 1];
  }
  for (int64_t n = blockIdx.y; n < batch.count; n += gridDim.y) {
    const Source source = source_of(batch, n);
    float found[kStep];
    if (kStep == 4 && leaves_as_is(source.change)) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(source.image + i);
      for (int k = 0; k < kStep; ++k) {
        found[k] = normalized(word >> (8 * k) & 0xff, batch.scale[c[k]], batch.bias[c[k]]);
      }
    } else {
      for (int k = 0; k < kStep; ++k) found[k] = value_at(batch, source, y[k], x[k], c[k]);
    }
    T* out = images + n * static_cast<int64_t>(values) + i;
    if (kStep == 4) {
      Four<T> four;
      for (int k = 0; k < kStep; ++k) four.values[k] = rounded<T>(found[k]);
      *reinterpret_cast<Four<T>*>(out) = four;
    } else {
      for (int k = 0; k < kStep; ++k) out[k] = rounded<T>(found[k]);
    }
  }
}

/// To planes, four neighbouring pixels a thread: kChannels words in, a Four a plane out. The width
/// is a multiple of 4.
template <class T, int kChannels>
__global__ void augment_four_to_planes(Batch batch, T* images) {
  const uint32_t area = batch.area();
  const uint32_t i = first_index() * 4;
  if (i >= area) return;
  const uint32_t y = i / batch.width;
  const uint32_t x = i - y * batch.width;
  for (int64_t n = blockIdx.y; n < batch.count; n += gridDim.y) {
    const Source source = source_of(batch, n);
    const bool as_is = leaves_as_is(source.change);
    uint32_t words[kChannels] = {};
    if (as_is) {
      for (int w = 0; w < kChannels; ++w) {
        words[w] = reinterpret_cast<const uint32_t*>(source.image + i * kChannels)[w];
      }
    }
    const auto byte = [&](int b) { return words[b / 4] >> (b % 4 * 8) & 0xff; };
    T* out = images + n * (static_cast<int64_t>(area) * kChannels) + i;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      Four<T> four;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        four.values[k] =
            rounded<T>(as_is ? normalized(byte(k * kChannels + c), batch.scale[c], batch.bias[c])
                             : value_at(batch, source, y, x + k, c));
      }
      *reinterpret_cast<Four<T>*>(out + static_cast<int64_t>(c) * area) = four;
    }
  }
}

/// To planes, any width and number of channels, a pixel a thread.
template <class T>
__global__ void augment_to_planes(Batch batch, T* images) {
  const uint32_t area = batch.area();
  const uint32_t i = first_index();
  if (i >= area) return;
  const uint32_t y = i / batch.width;
  const uint32_t x = i - y * batch.width;
  for (int64_t n = blockIdx.y; n < batch.count; n += gridDim.y) {
    const Source source = source_of(batch, n);
    T* out = images + n * (static_cast<int64_t>(area) * batch.channels) + i;
    for (uint32_t c = 0; c < batch.channels; ++c) {
      out[static_cast<int64_t>(c) * area] = rounded<T>(value_at(batch, source, y, x, c));
    }
  }
}

template <class T>
void transform(const Batch& batch, bool channels_last, T* images, cudaStream_t stream) {
  const uint32_t area = batch.height * batch.width;
  const uint32_t values = area * batch.channels;
  const auto grid = [&](uint32_t threads) {
    return dim3((threads + kThreads - 1) / kThreads,
                static_cast<unsigned>(std::min(batch.count, kMaxImages)));
  };
  if (channels_last || batch.channels == 1) {
    if (values % 4 == 0) {
      launch(augment_interleaved<T, 4>, {grid(values / 4), kThreads, 0, stream}, batch, images);
    } else {
      launch(augment_interleaved<T, 1>, {grid(values), kThreads, 0, stream}, batch, images);
    }
  } else if (batch.width % 4 == 0 && batch.channels == 3) {
    launch(augment_four_to_planes<T, 3>, {grid(area / 4), kThreads, 0, stream}, batch, images);
  } else if (batch.width % 4 == 0 && batch.channels == 4) {
    launch(augment_four_to_planes<T, 4>, {grid(area / 4), kThreads, 0, stream}, batch, images);
  } else {
    launch(augment_to_planes<T>, {grid(area), kThreads, 0, stream}, batch, images);
  }
}

}  // namespace

cudaError_t launch_transform_images(const ImageInputs& inputs, ImageSizes sizes, bool channels_last,
                                    FloatType type, void* images, cudaStream_t stream) {
  const Batch batch = {inputs.pixels,
                       inputs.scale,
                       inputs.bias,
                       inputs.changes,
                       sizes.count,
                       static_cast<uint32_t>(sizes.height),
                       static_cast<uint32_t>(sizes.width),
                       static_cast<uint32_t>(sizes.channels)};
  switch (type) {
    case FloatType::kFloat:
      transform(batch, channels_last, static_cast<float*>(images), stream);
      break;
    case FloatType::kBFloat16:
      transform(batch, channels_last, static_cast<__nv_bfloat16*>(images), stream);
      break;
    case FloatType::kHalf:
      transform(batch, channels_last, static_cast<__half*>(images), stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace brim::cuda
