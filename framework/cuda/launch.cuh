// How kernels are launched and what is nvcc's alone, so that a C++ compiler takes the kernels too:
// tests/cuda/emulation.h runs them on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace brim::cuda {

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic shared memory of a block
  cudaStream_t stream = nullptr;
};

#ifdef __CUDACC__

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& at, const Arguments&... arguments) {
  kernel<<<at.grid, at.block, at.shared_bytes, at.stream>>>(static_cast<Parameters>(arguments)...);
}

/// The block's dynamic shared memory.
__device__ __forceinline__ double* dynamic_shared() {
  extern __shared__ double memory[];
  return memory;
}

#endif

}  // namespace brim::cuda
