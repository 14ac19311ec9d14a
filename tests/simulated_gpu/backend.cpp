// device::CudaBackend of the simulated GPU: lies where the programs look for libbrim_cuda.so.
#include <c10/util/Exception.h>

#include "framework/cuda/draw_jpegs.h"
#include "framework/device/cuda_backend.h"
#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/graph.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/nccl.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

using device::SyncDebugMode;

class Backend final : public device::CudaBackend {
 public:
  Backend() {
    register_device();
    register_profiler();
    take_launches();
  }

  int device_count() const override { return simulated::device_count(); }
  std::string name(int) const override { return "Simulated GPU"; }
  int compute_capability(int) const override { return 80; }
  std::string driver_version() const override { return "13.0"; }
  std::map<std::string, std::string> libraries() const override {
    return {{"cuda", "13.0"}, {"cudnn", "9.0"}, {"nccl", "2.0"}};
  }
  device::CudaMemory memory(int) const override {
    const Counts now = counts();
    return {.allocated_bytes = now.allocated,
            .reserved_bytes = now.allocated,
            .peak_bytes = now.peak,
            .peak_reserved_bytes = now.peak};
  }
  device::CudaSpace space(int) const override {
    return {.free_bytes = device_bytes() - counts().allocated, .total_bytes = device_bytes()};
  }
  void reset_peak(int) const override { simulated::reset_peak(); }
  void release_cached() const override {}
  void start_memory_history() const override {}
  std::string memory_snapshot() const override { return "no snapshot"; }
  void set_memory_fraction(double fraction, int) const override {
    set_limit(static_cast<int64_t>(fraction * static_cast<double>(device_bytes())));
  }
  void set_device(int index) const override { simulated::set_device(index); }
  void synchronize(int) const override { synchronize_all(); }
  void set_sync_debug_mode(SyncDebugMode mode) const override {
    host_waits() = mode == SyncDebugMode::kError  ? HostWaits::kRefused
                   : mode == SyncDebugMode::kWarn ? HostWaits::kWarned
                                                  : HostWaits::kAllowed;
  }
  SyncDebugMode sync_debug_mode() const override {
    return host_waits() == HostWaits::kRefused  ? SyncDebugMode::kError
           : host_waits() == HostWaits::kWarned ? SyncDebugMode::kWarn
                                                : SyncDebugMode::kOff;
  }
  std::unique_ptr<device::GraphRecorder> make_graph_recorder(int) const override {
    return simulated::make_graph_recorder();
  }
  std::string nvjpeg_problem(int) const override {
    return cuda::nvjpeg_problem(simulated::device());
  }
  void draw_jpegs(std::span<device::DrawnJpeg> jpegs, int) const override {
    cuda::draw_jpegs(jpegs, simulated::device());
  }
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int world, int,
                                              std::chrono::milliseconds limit) const override {
    return simulated::make_nccl(store, rank, world, limit);
  }
};

}  // namespace
}  // namespace brim::simulated

extern "C" __attribute__((visibility("default"))) const brim::device::CudaBackend*
brim_cuda_backend() {
  static const auto* const backend = new brim::simulated::Backend();
  return backend;
}
