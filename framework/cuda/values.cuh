// Values of each format in a kernel: what they are computed in, and how several are read at once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

template <class T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
/// float64 for float64, float32 for the rest.
template <class T>
using Wide = typename WideOf<T>::type;

static __device__ __forceinline__ float wide(float x) { return x; }
static __device__ __forceinline__ double wide(double x) { return x; }
static __device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float wide(__half x) { return __half2float(x); }

static __device__ __forceinline__ void narrow(float x, float& to) { to = x; }
static __device__ __forceinline__ void narrow(double x, double& to) { to = x; }
static __device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(x);
}
static __device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }

inline constexpr int kWarp = 32;
/// Values that one thread reads at once, where they lie on kPackBytes.
template <class T>
constexpr int kPack = static_cast<int>(kPackBytes / sizeof(T));

/// N values that are read and written in one go, or kPackBytes at a time.
template <class T, int N>
struct alignas(sizeof(T) * N < kPackBytes ? sizeof(T) * N : kPackBytes) Pack {
  T values[N];
};

template <class T, int N>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N>
__device__ __forceinline__ void store(const Pack<T, N>& values, T* to) {
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}

/// Whether all tensors, whose rows are that many values apart, can be read in packs of T's; null
/// for a tensor that is not there. Also those of wider values, as factors of channels are.
template <class T>
bool packs(int64_t stride, std::initializer_list<const void*> tensors) {
  bool is_aligned = stride % kPack<T> == 0;
  for (const void* tensor : tensors) {
    is_aligned = is_aligned && reinterpret_cast<uintptr_t>(tensor) % kPackBytes == 0;
  }
  return is_aligned;
}

template <class T>
struct Tag {
  using type = T;
};
template <int N>
struct Number {
  static constexpr int value = N;
};

/// f(Tag<T>) for the format's type, which launches kernels; the status of the launch.
template <class F>
cudaError_t with_type(Format format, const F& f) {
  switch (format) {
    case Format::kFloat:
      f(Tag<float>());
      break;
    case Format::kBFloat16:
      f(Tag<__nv_bfloat16>());
      break;
    case Format::kHalf:
      f(Tag<__half>());
      break;
    case Format::kDouble:
      f(Tag<double>());
      break;
  }
  return cudaGetLastError();
}

}  // namespace brim::cuda
