// The memory of the device that a job trains on: how much it holds, and how much it may take. The
// same for the CPU, whose tensors Brim's allocator serves, and for a GPU under LibTorch's.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "framework/base/error.h"
#include "framework/device/choice.h"
#include "framework/device/memory/block_cache.h"

namespace brim::device {

/// Of what a job may take of a GPU: for CUDA's context, NCCL and other libraries, which LibTorch's
/// allocator doesn't see.
inline constexpr int64_t kCudaLibraries = int64_t{512} << 20;

class Memory {
 public:
  virtual ~Memory() = default;

  /// `cap_bytes` is what tensors may hold in all, cached memory included.
  virtual MemoryStats stats() const = 0;
  /// From now on the peak counts from what is allocated now.
  virtual void reset_peak() = 0;
  virtual void release_cached() = 0;
  /// The most that the job has held beside tensors: on the CPU what the process has grown by since
  /// this was made, batches being loaded included, pages of mapped files not; on a GPU an
  /// allowance.
  virtual int64_t outside_bytes() const = 0;
  /// From now on outside_bytes() is of what the job holds from now on: a checkpoint has been read,
  /// whose pages are gone.
  virtual void forget_outside_peak() = 0;
  /// From now on every allocation is remembered, until snapshot().
  virtual void start_history() = 0;
  /// What happened since, and what is held: a pickle for PyTorch's memory viewer
  /// (pytorch.org/memory_viz).
  virtual std::string snapshot() = 0;
  /// Waits for what the device has been given to do.
  virtual void synchronize() const = 0;

  /// What the job may take in all.
  int64_t limit_bytes() const { return limit_bytes_; }
  /// From now on tensors leave at least so much of the limit for what the job will hold beside
  /// them.
  void keep_outside(int64_t bytes);
  /// Leaves tensors what the limit leaves beside that, or what the job holds beside them already
  /// where that is more.
  void leave_for_tensors();

 protected:
  explicit Memory(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  virtual void set_cap(int64_t bytes) = 0;

 private:
  int64_t limit_bytes_;
  int64_t kept_bytes_ = 0;
};

/// The limit is the config's; where it gives none, what is free on the device now. `sharers` ranks
/// of this job have the CPU in common, and each gets its part of the limit. On the CPU this
/// installs Brim's allocator: call it before tensors are made, once. Throws Error(kResource) for a
/// limit over what the device has, Error(kBug) for values that no recipe may have and for no
/// sharer.
std::unique_ptr<Memory> memory_of(c10::Device device, const DeviceConfig& config,
                                  int64_t sharers = 1);

/// What is thrown, as the Error that users read: exhausted memory is kResource, what else is no
/// Error is kBug, without a backtrace. LibTorch's allocators say that memory ran out by
/// c10::OutOfMemoryError, CUDA, cuBLAS and cuDNN in the words of another error. cuDNN's search of a
/// plan, which swallows exhausted memory, says only that there is no engine: that counts too.
Error as_error(const std::exception& thrown);

/// Runs `work`. False where memory runs out in it; `shortage` is then LibTorch's message, and what
/// the work held is free again. Throws what else the work throws.
bool fits(const std::function<void()>& work, std::string* shortage = nullptr);
/// What `shortage` says where the work fits here and not on another rank.
inline constexpr const char* kShortElsewhere = "another rank is out of memory";

}  // namespace brim::device
