// Runs the CUDA kernels on the CPU. Included before a .cu file that a C++ compiler compiles, it
// gives what nvcc has built in. A block's threads are fibers: each runs until it waits for others,
// a warp as far as it gets, in a random order, so that a missing barrier shows; blocks run one
// after another, in a random order too. What the hardware leaves undefined, as a barrier that a
// thread never reaches, throws.
#pragma once

#define __device__
#define __global__
#define __shared__ static  // one block at a time

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>

#include <cstdint>
#include <cstring>
#include <functional>

#include "framework/cuda/launch.cuh"

namespace brim::cuda {

namespace emulation {

/// What kernel code sees of the thread that runs.
struct Indices {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
const Indices& indices();

void wait_for_block();

/// The bits that the lane `distance` away, by exclusive or, brought to the same call.
uint64_t exchange(uint64_t bits, int distance);

double* shared_memory();

/// Runs body once a thread. Throws std::logic_error where hardware may hang or give anything.
void run(const Launch& at, const std::function<void()>& body);

/// What becomes of a launch: run(), unless a test takes it.
extern void (*launcher)(const Launch& at, const std::function<void()>& body);

/// From now on other orders of threads and blocks.
void reseed(uint64_t seed);

}  // namespace emulation

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& at, const Arguments&... arguments) {
  emulation::launcher(at, [=] { kernel(static_cast<Parameters>(arguments)...); });
}

inline double* dynamic_shared() { return emulation::shared_memory(); }

}  // namespace brim::cuda

#define threadIdx (brim::cuda::emulation::indices().thread)
#define blockIdx (brim::cuda::emulation::indices().block)
#define blockDim (brim::cuda::emulation::indices().block_size)
#define gridDim (brim::cuda::emulation::indices().grid_size)

inline void __syncthreads() { brim::cuda::emulation::wait_for_block(); }

template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int distance) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  if (lanes != 0xffffffffU) __builtin_trap();
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = brim::cuda::emulation::exchange(bits, distance);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }

inline cudaError_t emulated_last_error() { return cudaSuccess; }
#define cudaGetLastError emulated_last_error
