// The part of nvJPEG that Brim calls, declared by ourselves, so that it is not needed to build.
// Names, layouts and values are those of its public reference (docs.nvidia.com/cuda/nvjpeg); only
// draw_jpegs.cpp and the tests' own nvJPEG see this.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace brim::cuda::nvjpeg {

/// Others than these mean that a file can't be decoded, or that a call has failed.
enum class Status : int { kSuccess = 0, kAllocatorFailure = 5, kArchMismatch = 7 };

/// An engine of the GPU: for baseline files of a single scan.
inline constexpr int kHardware = 3;
/// Colour at half size is interpolated, as libjpeg does, rather than repeated.
inline constexpr unsigned kInterpolates = 1U << 5U;
/// Bytes of red, green and blue side by side, in Image's first plane.
inline constexpr int kRgbInterleaved = 5;

/// Of memory on the device or, pinned, on the host. Both return 0 unless they fail.
struct Allocator {
  int (*allocate)(void* context, void** memory, size_t bytes, cudaStream_t stream);
  int (*free)(void* context, void* memory, size_t bytes, cudaStream_t stream);
  void* context;
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
  Status (*create)(int backend, Allocator* device, Allocator* pinned, unsigned flags,
                   Handle*) = nullptr;
  Status (*destroy)(Handle) = nullptr;
  Status (*create_state)(Handle, State*) = nullptr;
  /// widths and heights: of up to four components.
  Status (*image_info)(Handle, const unsigned char* file, size_t bytes, int* components,
                       int* subsampling, int* widths, int* heights) = nullptr;
  Status (*start_batch)(Handle, State, int images, int cpu_threads, int output_format) = nullptr;
  Status (*decode_batch)(Handle, State, const unsigned char* const* files, const size_t* bytes,
                         Image* images, cudaStream_t) = nullptr;
};

}  // namespace brim::cuda::nvjpeg
