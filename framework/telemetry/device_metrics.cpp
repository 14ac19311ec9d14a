#include "framework/telemetry/device_metrics.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "framework/base/log.h"
#include "framework/device/gpus/device_list.h"

namespace brim::telemetry {
namespace {

constexpr std::array kNames = {
    "busy_percent", "memory_busy_percent", "sm_percent", "tensor_percent", "bandwidth_percent",
    "slowed",       "temperature_c",       "power_w",    "sm_mhz"};

/// By the places of kNames.
std::array<std::optional<double>, kNames.size()> metrics_of(const device::GpuReading& gpu) {
  std::optional<double> slowed;
  if (gpu.throttle) slowed = gpu.is_slowed ? 1 : 0;
  return {gpu.busy_percent,
          gpu.memory_busy_percent,
          gpu.sm_percent,
          gpu.tensor_percent,
          gpu.bandwidth_percent,
          slowed,
          gpu.temperature_c,
          gpu.power_w,
          gpu.sm_mhz};
}

}  // namespace

DeviceMetrics::DeviceMetrics(int cuda_device, std::chrono::milliseconds every,
                             const std::string& library)
    : every_(every) {
  static_assert(kNames.size() == kMetrics);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  thread_ = std::jthread(
      [this, cuda_device, library, is_limited = visible != nullptr,
       list = std::string(visible == nullptr ? "" : visible)](const std::stop_token& stop) {
        follow(stop, cuda_device, list, is_limited, library);
      });
}

void DeviceMetrics::follow(const std::stop_token& stop, int cuda_device, const std::string& visible,
                           bool is_limited, const std::string& library) {
  device::Nvml nvml(library);
  const auto gpus = device::visible_gpus(nvml.read(), is_limited ? visible.c_str() : nullptr);
  if (static_cast<size_t>(cuda_device) >= gpus.size()) {
    log::info("no metrics of the GPU in metrics.jsonl: {}",
              nvml.is_there() ? "NVML does not show the one that CUDA uses" : nvml.why_not());
    return;
  }
  const int index = gpus[static_cast<size_t>(cuda_device)].gpu.index;
  while (!stop.stop_requested()) {
    const device::GpuReading gpu = nvml.read_activity(index);
    if (!gpu.trouble.empty()) {
      log::info("metrics of GPU {} end here: {}", index, gpu.trouble);
      return;
    }
    std::unique_lock lock(mutex_);
    take(gpu);
    wakes_.wait_for(lock, stop, every_, [] { return false; });
  }
}

void DeviceMetrics::take(const device::GpuReading& gpu) {
  const auto metrics = metrics_of(gpu);
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (!metrics[i]) continue;
    means_[i].sum += *metrics[i];
    ++means_[i].count;
  }
}

void DeviceMetrics::add_to(nlohmann::json& line) {
  std::array<Mean, kMetrics> means;
  {
    const std::scoped_lock lock(mutex_);
    means = std::exchange(means_, {});
  }
  for (size_t i = 0; i < means.size(); ++i) {
    if (means[i].count > 0) line["device"][kNames[i]] = means[i].sum / means[i].count;
  }
}

}  // namespace brim::telemetry
