#include "framework/device/memory/memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <string>

#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/allocator.h"
#include "framework/device/memory/memory_history.h"

namespace brim::device {
namespace {

constexpr double kGib = 1 << 30;

/// A line of /proc/self/status, as VmHWM; 0 where there is none.
int64_t status_bytes(const char* name) { return Machine().status(name).value_or(0); }

/// A recipe's values have been checked as they were read; a program's own have not.
void check(const DeviceConfig& config, int64_t sharers) {
  if (!(config.memory_fraction > 0 && config.memory_fraction <= 1)) {
    throw Error(Exit::kBug, "memory_of(): memory_fraction is {}: expected more than 0, at most 1",
                config.memory_fraction);
  }
  if (!(config.memory_gib >= 0)) {
    throw Error(Exit::kBug,
                "memory_of(): memory_gib is {}: expected more than 0, or 0 for memory_fraction's",
                config.memory_gib);
  }
  if (sharers < 1) {
    throw Error(Exit::kBug, "memory_of(): sharers is {}: expected at least 1", sharers);
  }
}

/// What the config allows of a device that has `total` bytes, `free` of them free.
int64_t limit(const DeviceConfig& config, int64_t total, int64_t free) {
  double bytes = static_cast<double>(free);
  if (config.memory_gib > 0) {
    bytes = config.memory_gib * kGib;
  } else if (config.memory_fraction < 1) {
    bytes = config.memory_fraction * static_cast<double>(total);
  }
  if (bytes > static_cast<double>(total)) {
    throw Error(Exit::kResource,
                "[device] memory_gib = {} is more than there is: {}; lower it, or leave it out for "
                "what is free",
                config.memory_gib, format_bytes(total));
  }
  return static_cast<int64_t>(std::min(bytes, config.max_memory_gib * kGib));
}

class CpuMemory final : public Memory {
 public:
  CpuMemory(const DeviceConfig& config, int64_t sharers)
      : Memory(machine_limit(config) / sharers),
        start_bytes_(status_bytes("VmRSS") - status_bytes("RssFile")) {
    install_cpu_allocator();
  }

  MemoryStats stats() const override { return cpu_memory(); }
  void reset_peak() override { reset_cpu_peak(); }
  void release_cached() override { release_cached_cpu_memory(); }
  int64_t outside_bytes() const override {
    // What is mapped of files can be dropped at any time.
    const int64_t most = status_bytes("VmHWM");
    if (most == forgotten_peak_bytes_) {
      const int64_t now = status_bytes("VmRSS") - status_bytes("RssFile") - start_bytes_;
      return std::max<int64_t>(0, now - stats().reserved_bytes);
    }
    // The most that the process ever held, less the most that tensors did: both peak together.
    const int64_t own = most - status_bytes("RssFile") - start_bytes_;
    return std::max<int64_t>(0, own - stats().peak_reserved_bytes);
  }
  void forget_outside_peak() override { forgotten_peak_bytes_ = status_bytes("VmHWM"); }
  void start_history() override { start_memory_history(); }
  std::string snapshot() override {
    stop_memory_history();
    return pickle_memory_history();
  }
  void synchronize() const override {}

 private:
  static int64_t machine_limit(const DeviceConfig& config) {
    const Machine machine;
    const int64_t total =
        std::min(machine.memory_bytes(),
                 machine.memory_limit_bytes().value_or(std::numeric_limits<int64_t>::max()));
    return limit(config, total, std::min(total, machine.free_memory_bytes()));
  }
  void set_cap(int64_t bytes) override { set_cpu_cap(bytes); }

  int64_t start_bytes_;
  int64_t forgotten_peak_bytes_ = 0;
};

class GpuMemory final : public Memory {
 public:
  GpuMemory(int device, const DeviceConfig& config)
      : GpuMemory(device, config, cuda().backend->space(device)) {}

  MemoryStats stats() const override {
    const CudaMemory now = cuda().backend->memory(device_);
    return {.allocated_bytes = now.allocated_bytes,
            .reserved_bytes = now.reserved_bytes,
            .peak_bytes = now.peak_bytes,
            .peak_reserved_bytes = now.peak_reserved_bytes,
            .cap_bytes = cap_bytes_};
  }
  void reset_peak() override { cuda().backend->reset_peak(device_); }
  void release_cached() override { cuda().backend->release_cached(); }
  int64_t outside_bytes() const override { return kCudaLibraries; }
  void forget_outside_peak() override {}
  void start_history() override { cuda().backend->start_memory_history(); }
  std::string snapshot() override { return cuda().backend->memory_snapshot(); }
  void synchronize() const override { cuda().backend->synchronize(device_); }

 private:
  GpuMemory(int device, const DeviceConfig& config, const CudaSpace& space)
      : Memory(limit(config, space.total_bytes, space.free_bytes)),
        device_(device),
        total_bytes_(space.total_bytes) {
    if (limit_bytes() <= kCudaLibraries) {
      throw Error(Exit::kResource,
                  "this job may take {} of the GPU, and {} are left for CUDA's context and "
                  "libraries: end what runs there, or give it more (device.memory_gib)",
                  format_bytes(limit_bytes()), format_bytes(kCudaLibraries));
    }
  }

  void set_cap(int64_t bytes) override {
    cap_bytes_ = bytes;
    const double share = static_cast<double>(bytes) / static_cast<double>(total_bytes_);
    cuda().backend->set_memory_fraction(std::clamp(share, 1e-6, 1.0), device_);
  }

  int device_;
  int64_t total_bytes_;
  int64_t cap_bytes_ = 0;
};

bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  constexpr std::array kWords = {"CUDA error: out of memory", "CUDA failure 2 ", "_ALLOC_FAILED",
                                 "_ALLOCATION_FAILED", "unable to find an engine to execute"};
  const std::string said = error.what_without_backtrace();
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* words) { return said.find(words) != std::string::npos; });
}

}  // namespace

void Memory::keep_outside(int64_t bytes) {
  kept_bytes_ = bytes;
  leave_for_tensors();
}

void Memory::leave_for_tensors() {
  set_cap(std::max<int64_t>(0, limit_bytes_ - std::max(kept_bytes_, outside_bytes())));
}

std::unique_ptr<Memory> memory_of(c10::Device device, const DeviceConfig& config, int64_t sharers) {
  check(config, sharers);
  std::unique_ptr<Memory> memory;
  if (device.is_cpu()) {
    memory = std::make_unique<CpuMemory>(config, sharers);
  } else {
    memory = std::make_unique<GpuMemory>(device.index(), config);
  }
  memory->leave_for_tensors();
  return memory;
}

Error as_error(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (const auto* error = dynamic_cast<const c10::Error*>(&thrown)) {
    return {is_out_of_memory(*error) ? Exit::kResource : Exit::kBug,
            std::string(error->what_without_backtrace())};
  }
  const bool is_host_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  return {is_host_memory ? Exit::kResource : Exit::kBug, std::string(thrown.what())};
}

bool fits(const std::function<void()>& work, std::string* shortage) {
  try {
    work();
    return true;
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    if (shortage != nullptr) *shortage = error.what_without_backtrace();
    return false;
  }
}

}  // namespace brim::device
