// What the CUDA half (framework/cuda/, a shared library of its own) does for the rest of Brim. No
// CUDA type crosses this line, so the same programs run with and without a GPU.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "framework/device/drawn_jpeg.h"
#include "framework/device/graph_recorder.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace brim::device {

struct CudaMemory {
  int64_t allocated_bytes = 0;  // by tensors
  int64_t reserved_bytes = 0;   // by LibTorch's caching allocator
  int64_t peak_bytes = 0;       // most allocated since the last reset
  int64_t peak_reserved_bytes = 0;
};

struct CudaSpace {
  int64_t free_bytes = 0;  // on the device, for any process
  int64_t total_bytes = 0;
};

enum class SyncDebugMode { kOff, kWarn, kError };

/// Devices are numbered as CUDA_VISIBLE_DEVICES leaves them. Errors are LibTorch's exceptions.
class CudaBackend {
 public:
  virtual ~CudaBackend() = default;
  virtual int device_count() const = 0;
  virtual std::string name(int device) const = 0;
  /// 90 for compute capability 9.0.
  virtual int compute_capability(int device) const = 0;
  /// "13.0": the newest CUDA that the driver runs.
  virtual std::string driver_version() const = 0;
  /// Versions of what it was linked with: "cuda" (the runtime), "cudnn", "nccl".
  virtual std::map<std::string, std::string> libraries() const = 0;
  virtual CudaMemory memory(int device) const = 0;
  /// Asks the driver, which takes longer than a look at the allocator.
  virtual CudaSpace space(int device) const = 0;
  virtual void reset_peak(int device) const = 0;
  virtual void release_cached() const = 0;
  /// LibTorch's allocator remembers what it does, on every device, until memory_snapshot(): the
  /// pickle that PyTorch's memory viewer reads.
  virtual void start_memory_history() const = 0;
  virtual std::string memory_snapshot() const = 0;
  /// The share of a device's memory that this process may take, in (0, 1].
  virtual void set_memory_fraction(double fraction, int device) const = 0;
  virtual void set_device(int device) const = 0;
  virtual void synchronize(int device) const = 0;
  /// What LibTorch does where the host waits for the device: nothing, a warning, an error.
  virtual void set_sync_debug_mode(SyncDebugMode mode) const = 0;
  virtual SyncDebugMode sync_debug_mode() const = 0;
  /// Of this thread's work on the device.
  virtual std::unique_ptr<GraphRecorder> make_graph_recorder(int device) const = 0;
  /// Why the device can't decode JPEG files; "": it can.
  virtual std::string nvjpeg_problem(int device) const = 0;
  /// DrawJpegs of a device that has no such problem. Waits until it is done.
  virtual void draw_jpegs(std::span<DrawnJpeg> jpegs, int device) const = 0;
  /// NCCL between `world` ranks that meet in `store`; this one's tensors are on `device`. A
  /// collective that takes longer than `limit` fails.
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                      int rank, int world, int device,
                                                      std::chrono::milliseconds limit) const = 0;
};

}  // namespace brim::device
