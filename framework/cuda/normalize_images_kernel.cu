// Normalising is bound by memory: one byte in, four out. So what counts is that a warp's stores are
// whole lines: every thread stores float4 next to its neighbour's.

#include <algorithm>

#include "framework/cuda/normalize_images_kernel.h"

namespace brim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // beyond that, threads take several turns

/// Multiplies and adds without fusing, as x86 code for any processor does.
__device__ float normalized(uint32_t pixel, float scale, float bias) {
  return __fadd_rn(__fmul_rn(static_cast<float>(pixel), scale), bias);
}

__device__ int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ int64_t stride() { return static_cast<int64_t>(gridDim.x) * kThreads; }

/// Same layout in and out, four values a thread; the last values % 4 are taken one by one.
__global__ void normalize_interleaved(const uint8_t* pixels, const float* scale, const float* bias,
                                      float* images, int64_t values, int64_t channels) {
  const int64_t fours = values / 4;
  for (int64_t i = first_index(); i < fours; i += stride()) {
    const uchar4 four = reinterpret_cast<const uchar4*>(pixels)[i];
    int64_t c[4] = {i * 4 % channels};
    for (int k = 1; k < 4; ++k) c[k] = c[k - 1] + 1 == channels ? 0 : c[k - 1] + 1;
    reinterpret_cast<float4*>(images)[i] = make_float4(
        normalized(four.x, scale[c[0]], bias[c[0]]), normalized(four.y, scale[c[1]], bias[c[1]]),
        normalized(four.z, scale[c[2]], bias[c[2]]), normalized(four.w, scale[c[3]], bias[c[3]]));
  }
  for (int64_t i = fours * 4 + first_index(); i < values; i += stride()) {
    images[i] = normalized(pixels[i], scale[i % channels], bias[i % channels]);
  }
}

/// To planes, four neighbouring pixels a thread: kChannels words in, one float4 a plane out. The
/// area is a multiple of 4.
template <int kChannels>
__global__ void normalize_four_to_planes(const uint8_t* pixels, const float* scale,
                                         const float* bias, float* images, int64_t batch,
                                         int64_t area) {
  const int64_t fours_per_image = area / 4;
  for (int64_t i = first_index(); i < batch * fours_per_image; i += stride()) {
    uint32_t words[kChannels];
    for (int w = 0; w < kChannels; ++w) {
      words[w] = reinterpret_cast<const uint32_t*>(pixels)[i * kChannels + w];
    }
    const auto byte = [&](int b) { return words[b / 4] >> (b % 4 * 8) & 0xff; };
    const int64_t image = i / fours_per_image;
    float* out = images + image * kChannels * area + (i - image * fours_per_image) * 4;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      *reinterpret_cast<float4*>(out + c * area) =
          make_float4(normalized(byte(c), scale[c], bias[c]),
                      normalized(byte(kChannels + c), scale[c], bias[c]),
                      normalized(byte(2 * kChannels + c), scale[c], bias[c]),
                      normalized(byte(3 * kChannels + c), scale[c], bias[c]));
    }
  }
}

/// To planes, any area and number of channels, a pixel a thread.
__global__ void normalize_to_planes(const uint8_t* pixels, const float* scale, const float* bias,
                                    float* images, int64_t batch, int64_t area, int64_t channels) {
  for (int64_t i = first_index(); i < batch * area; i += stride()) {
    const int64_t image = i / area;
    float* out = images + image * channels * area + (i - image * area);
    for (int64_t c = 0; c < channels; ++c) {
      out[c * area] = normalized(pixels[i * channels + c], scale[c], bias[c]);
    }
  }
}

int blocks_for(int64_t threads) {
  return static_cast<int>(std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace

cudaError_t launch_normalize_images(const uint8_t* pixels, const float* scale, const float* bias,
                                    float* images, ImageSizes sizes, bool channels_last,
                                    cudaStream_t stream) {
  const auto [batch, area, channels] = sizes;
  const int64_t values = batch * area * channels;
  const int fours = blocks_for(batch * area / 4);
  if (channels_last || channels == 1) {
    normalize_interleaved<<<blocks_for(values / 4), kThreads, 0, stream>>>(
        pixels, scale, bias, images, values, channels);
  } else if (area % 4 == 0 && channels == 3) {
    normalize_four_to_planes<3>
        <<<fours, kThreads, 0, stream>>>(pixels, scale, bias, images, batch, area);
  } else if (area % 4 == 0 && channels == 4) {
    normalize_four_to_planes<4>
        <<<fours, kThreads, 0, stream>>>(pixels, scale, bias, images, batch, area);
  } else {
    normalize_to_planes<<<blocks_for(batch * area), kThreads, 0, stream>>>(
        pixels, scale, bias, images, batch, area, channels);
  }
  return cudaGetLastError();
}

}  // namespace brim::cuda
