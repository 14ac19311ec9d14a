// device::CudaBackend on the CUDA runtime and LibTorch's caching allocator.

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "framework/cuda/draw_jpegs.h"
#include "framework/cuda/graph_recorder.h"
#include "framework/device/cuda_backend.h"

namespace brim::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr size_t kHistoryEvents = 100'000;

c10::DeviceIndex index(int device) { return static_cast<c10::DeviceIndex>(device); }

cudaDeviceProp properties(int device) {
  cudaDeviceProp result;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&result, device));
  return result;
}

/// 13000 is 13.0.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// LibTorch's own sum over memory pools.
size_t aggregate() { return static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE); }

class Backend final : public device::CudaBackend {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  std::string name(int device) const override { return properties(device).name; }

  int compute_capability(int device) const override {
    int major = 0, minor = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    return major * 10 + minor;
  }

  std::string driver_version() const override {
    int version = 0;
    C10_CUDA_CHECK(cudaDriverGetVersion(&version));
    return version_text(version);
  }

  std::map<std::string, std::string> libraries() const override {
    int runtime = 0;
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    const long cudnn = at::detail::getCUDAHooks().versionRuntimeCuDNN();  // 91300 is 9.13.0
    return {{"cuda", version_text(runtime)},
            {"cudnn", fmt::format("{}.{}.{}", cudnn / 10000, cudnn / 100 % 100, cudnn % 100)},
            {"nccl", c10d::getNcclVersion()}};
  }

  device::CudaMemory memory(int device) const override {
    prepare_allocator();
    const auto stats = allocator::getDeviceStats(index(device));
    return {.allocated_bytes = stats.allocated_bytes[aggregate()].current,
            .reserved_bytes = stats.reserved_bytes[aggregate()].current,
            .peak_bytes = stats.allocated_bytes[aggregate()].peak,
            .peak_reserved_bytes = stats.reserved_bytes[aggregate()].peak};
  }

  device::CudaSpace space(int device) const override {
    const c10::cuda::CUDAGuard guard(index(device));
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {.free_bytes = static_cast<int64_t>(free), .total_bytes = static_cast<int64_t>(total)};
  }

  void reset_peak(int device) const override {
    prepare_allocator();
    allocator::resetPeakStats(index(device));
  }

  void release_cached() const override {
    prepare_allocator();
    allocator::emptyCache();
  }

  void start_memory_history() const override {
    prepare_allocator();
    torch::cuda::_record_memory_history(/*enabled=*/"all", /*context=*/"all", /*stacks=*/"all",
                                        kHistoryEvents);
  }

  std::string memory_snapshot() const override {
    std::string result = torch::cuda::_memory_snapshot_pickled();
    torch::cuda::_record_memory_history(std::nullopt);
    return result;
  }

  void set_memory_fraction(double fraction, int device) const override {
    prepare_allocator();
    allocator::setMemoryFraction(fraction, index(device));
  }

  void set_device(int device) const override { c10::cuda::set_device(index(device)); }

  void synchronize(int device) const override {
    const c10::cuda::CUDAGuard guard(index(device));
    c10::cuda::device_synchronize();
  }

  void set_sync_debug_mode(device::SyncDebugMode mode) const override {
    c10::cuda::warning_state().set_sync_debug_mode(
        mode == device::SyncDebugMode::kError  ? c10::cuda::SyncDebugMode::L_ERROR
        : mode == device::SyncDebugMode::kWarn ? c10::cuda::SyncDebugMode::L_WARN
                                               : c10::cuda::SyncDebugMode::L_DISABLED);
  }

  device::SyncDebugMode sync_debug_mode() const override {
    switch (c10::cuda::warning_state().get_sync_debug_mode()) {
      case c10::cuda::SyncDebugMode::L_ERROR:
        return device::SyncDebugMode::kError;
      case c10::cuda::SyncDebugMode::L_WARN:
        return device::SyncDebugMode::kWarn;
      case c10::cuda::SyncDebugMode::L_DISABLED:
        break;
    }
    return device::SyncDebugMode::kOff;
  }

  std::unique_ptr<device::GraphRecorder> make_graph_recorder(int device) const override {
    prepare_allocator();
    return std::make_unique<GraphRecorder>(index(device));
  }

  std::string nvjpeg_problem(int device) const override {
    if (device_count() > 0) prepare_allocator();
    return cuda::nvjpeg_problem({c10::DeviceType::CUDA, index(device)});
  }

  void draw_jpegs(std::span<device::DrawnJpeg> jpegs, int device) const override {
    cuda::draw_jpegs(jpegs, {c10::DeviceType::CUDA, index(device)});
  }

  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int world, int device,
                                              std::chrono::milliseconds limit) const override {
    const c10::cuda::CUDAGuard guard(index(device));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = limit;
    options->is_high_priority_stream = true;  // what ranks wait for goes before what they compute
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world, options);
  }

 private:
  /// The allocator knows its devices once LibTorch has initialised CUDA.
  static void prepare_allocator() { at::globalContext().lazyInitDevice(c10::DeviceType::CUDA); }
};

}  // namespace
}  // namespace brim::cuda

/// The library's only symbol. The object lives as long as the process.
extern "C" __attribute__((visibility("default"))) const brim::device::CudaBackend*
brim_cuda_backend() {
  static const brim::cuda::Backend backend;
  return &backend;
}
