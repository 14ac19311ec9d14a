// What the GPU goes through while a run trains on it: metrics for metrics.jsonl, from NVML.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "framework/device/gpus/gpu_reading.h"
#include "framework/device/gpus/nvml.h"

namespace brim::telemetry {

/// Asks NVML from a thread of its own, so that a slow driver costs no step. Where NVML is not here
/// or the GPU is lost midway, an info line says so once and the metrics are absent from then on.
class DeviceMetrics {
 public:
  /// Follows the GPU that CUDA numbers `cuda_device` in this process.
  explicit DeviceMetrics(int cuda_device,
                         std::chrono::milliseconds every = std::chrono::milliseconds(1000),
                         const std::string& library = device::nvml_library());

  /// Adds to a line "device", the means of the readings since the last line: {"busy_percent",
  /// "memory_busy_percent", "sm_percent", "tensor_percent", "bandwidth_percent" (see GpuReading),
  /// "slowed" (the share of readings where heat or power kept the clocks low), "temperature_c",
  /// "power_w", "sm_mhz"}. What the GPU does not tell is left out; without a new reading, all of
  /// it. Never waits for NVML.
  void add_to(nlohmann::json& line);

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  static constexpr size_t kMetrics = 9;

  void follow(const std::stop_token& stop, int cuda_device, const std::string& visible,
              bool is_limited, const std::string& library);
  void take(const device::GpuReading& gpu);

  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::array<Mean, kMetrics> means_;  // guarded by mutex_
  std::jthread thread_;               // the last member: it uses the others
};

}  // namespace brim::telemetry
