// nvjpeg_api.h declares the part of nvJPEG that Brim calls; here NVIDIA's own header says whether
// it does so rightly. All of it is known to the compiler.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <nvjpeg.h>

#include <cstddef>
#include <type_traits>

#include "framework/cuda/nvjpeg_api.h"
#include "framework/device/cuda_backend.h"
#include "framework/device/cuda_loader.h"

namespace brim::cuda::nvjpeg {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(same(Status::kSuccess, NVJPEG_STATUS_SUCCESS));
static_assert(same(Status::kAllocatorFailure, NVJPEG_STATUS_ALLOCATOR_FAILURE));
static_assert(same(Status::kArchMismatch, NVJPEG_STATUS_ARCH_MISMATCH));
static_assert(same(kHardware, NVJPEG_BACKEND_HARDWARE));
static_assert(same(kRgbInterleaved, NVJPEG_OUTPUT_RGBI));
static_assert(kInterpolates == (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION));
static_assert(sizeof(Status) == sizeof(nvjpegStatus_t));

static_assert(sizeof(Image) == sizeof(nvjpegImage_t));
static_assert(offsetof(Image, planes) == offsetof(nvjpegImage_t, channel));
static_assert(offsetof(Image, row_bytes) == offsetof(nvjpegImage_t, pitch));
static_assert(sizeof(Allocator) == sizeof(nvjpegDevAllocatorV2_t) &&
              sizeof(Allocator) == sizeof(nvjpegPinnedAllocatorV2_t));
static_assert(offsetof(Allocator, allocate) == offsetof(nvjpegDevAllocatorV2_t, dev_malloc));
static_assert(offsetof(Allocator, free) == offsetof(nvjpegDevAllocatorV2_t, dev_free));
static_assert(offsetof(Allocator, context) == offsetof(nvjpegDevAllocatorV2_t, dev_ctx));
static_assert(offsetof(Allocator, allocate) == offsetof(nvjpegPinnedAllocatorV2_t, pinned_malloc));
static_assert(offsetof(Allocator, free) == offsetof(nvjpegPinnedAllocatorV2_t, pinned_free));
static_assert(offsetof(Allocator, context) == offsetof(nvjpegPinnedAllocatorV2_t, pinned_ctx));
static_assert(std::is_same_v<decltype(Allocator::allocate), tDevMallocV2> &&
              std::is_same_v<decltype(Allocator::allocate), tPinnedMallocV2>);
static_assert(std::is_same_v<decltype(Allocator::free), tDevFreeV2> &&
              std::is_same_v<decltype(Allocator::free), tPinnedFreeV2>);

/// Arguments that are passed alike: a number as one of its size, a pointer as any.
template <class Ours, class Theirs>
constexpr bool passes_alike() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else {
    return sizeof(Ours) == sizeof(Theirs);
  }
}

template <class... Ours, class... Theirs>
constexpr bool calls_alike(Status (*)(Ours...), nvjpegStatus_t (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return (passes_alike<Ours, Theirs>() && ...);
  }
  return false;
}

static_assert(calls_alike(decltype(Api::create){}, &nvjpegCreateExV2));
static_assert(calls_alike(decltype(Api::image_info){}, &nvjpegGetImageInfo));
static_assert(calls_alike(decltype(Api::destroy){}, &nvjpegDestroy));
static_assert(calls_alike(decltype(Api::create_state){}, &nvjpegJpegStateCreate));
static_assert(calls_alike(decltype(Api::start_batch){}, &nvjpegDecodeBatchedInitialize));
static_assert(calls_alike(decltype(Api::decode_batch){}, &nvjpegDecodeBatched));

TEST(NvJpegLayoutTest, NvidiasLibraryHasWhatIsCalled) {
  void* library = dlopen(BRIM_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  using Entry = const device::CudaBackend* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "brim_cuda_backend"));
  ASSERT_NE(entry, nullptr);
  // Without a GPU it is found and bound, and then has no device.
  EXPECT_THAT(entry()->nvjpeg_problem(0), testing::Not(testing::HasSubstr("libnvjpeg")));
  EXPECT_EQ(entry()->nvjpeg_problem(0).empty(), device::cuda().backend != nullptr);
}

}  // namespace
}  // namespace brim::cuda::nvjpeg
