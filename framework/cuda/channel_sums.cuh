// Sums a channel over rows of channels, [rows, C]. A thread keeps to a few neighbouring channels
// and goes down the rows, so that a channel's factors stay in registers; threads side by side read
// one row, or several short ones, without a gap. No sum depends on the order in which blocks run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/values.cuh"

namespace brim::cuda {

inline constexpr int kSumThreads = 256;
inline constexpr int64_t kRowsAThread = 16;  // at least, where there are as many
inline constexpr int64_t kMaxSumBlocks = 1024;

/// Where a thread works: N channels from `channel`, every `step`th row from `row`.
struct Place {
  int64_t row, step;
  int channel;
};

template <int N>
__device__ __forceinline__ Place place() {
  return {static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y,
          static_cast<int64_t>(gridDim.y) * blockDim.y,
          static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N};
}

/// N channels' values of a per-channel array, which lies on packs where N > 1; zeros beyond the
/// last channel.
template <class W, int N>
__device__ Pack<W, N> channels_of(const void* all, int channel, int channels) {
  return channel < channels ? load<W, N>(static_cast<const W*>(all) + channel) : Pack<W, N>{};
}

/// A thread's sums, kSums a channel.
template <class W, int N, int kSums>
struct Sums {
  W of[kSums][N] = {};
};

/// Adds up the threads of a block that share channels and stores the block's sums in
/// sums [gridDim.y, kSums, channels].
template <class W, int N, int kSums>
__device__ void store_sums(const Sums<W, N, kSums>& own, int channels, double* sums) {
  double* shared = dynamic_shared();  // [blockDim.y, kSums, blockDim.x · N]
  const int width = blockDim.x * N;
  double* row = shared + static_cast<int64_t>(threadIdx.y) * kSums * width;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) row[k * width + threadIdx.x * N + i] = own.of[k][i];
  }
  __syncthreads();
  const int first_channel = blockIdx.x * width;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = thread; i < kSums * width; i += blockDim.x * blockDim.y) {
    const int channel = first_channel + i % width;
    if (channel >= channels) continue;
    double sum = 0;
    for (int y = 0; y < blockDim.y; ++y) sum += shared[static_cast<int64_t>(y) * kSums * width + i];
    sums[(static_cast<int64_t>(blockIdx.y) * kSums + i / width) * channels + channel] = sum;
  }
}

template <int kSums>
struct Totals {
  double of[kSums] = {};
};

/// The sums of a channel over all blocks, in every lane of the warp.
template <int kSums>
__device__ Totals<kSums> total(const double* sums, int blocks, int channels, int channel) {
  Totals<kSums> result;
  for (int block = threadIdx.x; block < blocks; block += kWarp) {
    const double* of_block = sums + static_cast<int64_t>(block) * kSums * channels + channel;
#pragma unroll
    for (int k = 0; k < kSums; ++k) result.of[k] += of_block[static_cast<int64_t>(k) * channels];
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      result.of[k] += __shfl_xor_sync(0xffffffffU, result.of[k], distance);
    }
  }
  return result;
}

/// How threads and blocks are spread over rows and packs of channels.
struct SumLayout {
  dim3 grid, block;
  size_t shared_bytes;
};

inline SumLayout sum_layout(int64_t rows, int32_t channels, int pack, int sums) {
  const int packs = (channels + pack - 1) / pack;
  int x = 1;
  while (x < packs && x < kWarp) x *= 2;
  const int y = kSumThreads / x;
  const int64_t columns = (packs + x - 1) / x;
  const int64_t rows_a_block = kRowsAThread * y;
  const int64_t wanted = (rows + rows_a_block - 1) / rows_a_block;
  const int64_t most = std::max<int64_t>(1, kMaxSumBlocks / columns);
  return {dim3(static_cast<unsigned>(columns), static_cast<unsigned>(std::min(wanted, most))),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)),
          static_cast<size_t>(kSumThreads) * static_cast<size_t>(sums) * static_cast<size_t>(pack) *
              sizeof(double)};
}

/// Doubles of memory that the sums of all blocks need, whatever the pack.
inline int64_t sums_memory(int64_t rows, int32_t channels, int sums) {
  int64_t most = 0;
  for (const int pack : {1, 2, 4, 8}) {
    most = std::max<int64_t>(most, sum_layout(rows, channels, pack, sums).grid.y);
  }
  return most * sums * channels;
}

/// A warp for each channel.
inline constexpr int kWarpsABlock = kSumThreads / kWarp;
inline dim3 warp_each(int count) {
  return dim3(static_cast<unsigned>((count + kWarpsABlock - 1) / kWarpsABlock));
}
inline dim3 warps() { return dim3(kWarp, kWarpsABlock); }

}  // namespace brim::cuda
