// The part of nvJPEG that Brim calls, declared by ourselves, so that it is not needed to build.
// Names, layouts and values are those of its public reference (docs.nvidia.com/cuda/nvjpeg); only
// draw_jpegs.cpp and the tests' own nvJPEG see this.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace brim::cuda::nvjpeg {

enum class Status : int {
  kSuccess = 0,
  kBadJpeg = 3,
  kNotSupported = 4,
  kAllocatorFailure = 5,
  kIncomplete = 10,
};

enum class Backend : int {
  kGpuHybrid = 2,
  kHardware = 3,  // baseline files of a single scan
};

/// Files that do not keep to the standard in every respect are bad ones.
inline constexpr unsigned kStrict = 1U << 2U;

/// Bytes of red, green and blue side by side, in Image's first plane.
inline constexpr int kRgbInterleaved = 5;

/// Both return 0 unless they fail.
struct DeviceAllocator {
  int (*allocate)(void** memory, size_t bytes);
  int (*free)(void* memory);
};

struct Image {
  std::array<unsigned char*, 4> planes;  // on the device
  std::array<size_t, 4> row_bytes;
};

struct HandleData;
using Handle = HandleData*;
struct StateData;
using State = StateData*;

/// Its functions, by the names under which the library has them.
struct Api {
  Status (*create)(Backend, DeviceAllocator*, void* pinned_allocator, unsigned flags,
                   Handle*) = nullptr;
  Status (*create_state)(Handle, State*) = nullptr;
  Status (*start_batch)(Handle, State, int images, int cpu_threads, int output_format) = nullptr;
  Status (*decode_batch)(Handle, State, const unsigned char* const* files, const size_t* bytes,
                         Image* images, cudaStream_t) = nullptr;
};

}  // namespace brim::cuda::nvjpeg
