// GPUs as NVIDIA's management library shows them. The library is loaded at run time; without it
// there is a reason in words and no GPU. Needs no CUDA and takes no memory on a GPU.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/device/gpus/gpu_reading.h"
#include "framework/device/gpus/nvml_api.h"

namespace brim::device {

/// libnvidia-ml.so.1, or what the environment variable BRIM_NVML_LIBRARY names (tests).
std::string nvml_library();

/// Not thread-safe. Never throws: what fails is missing, and a GPU that vanishes says so in its
/// reading.
class Nvml {
 public:
  explicit Nvml(const std::string& library = nvml_library());
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Empty where the library answers; else why not, for people.
  const std::string& why_not() const { return why_not_; }
  bool is_there() const { return why_not_.empty(); }

  /// "580.65.06", and the newest CUDA that it can serve, as in "13.0".
  std::optional<std::string> driver_version() const;
  std::optional<std::string> cuda_version() const;

  /// One reading for each GPU of the machine, by index, whatever CUDA_VISIBLE_DEVICES says. GPM's
  /// activities cover the time since the reading before, which must be 100 ms ago or more; without
  /// one they are missing.
  std::vector<GpuReading> read();

  /// What changes while one GPU works: activities, temperature, power, clocks and why they are low.
  /// Fewer questions to the driver than read() asks, for who follows a GPU.
  GpuReading read_activity(int index);

  /// True after a reading where a GPU has GPM's counters, so that a second one has activities.
  bool has_counters() const { return !samples_.empty(); }

 private:
  GpuReading read(uint32_t index);
  /// Null where the GPU can't be had, as `gpu` then says.
  nvml::Device find(uint32_t index, GpuReading& gpu) const;
  void read_memory(nvml::Device device, GpuReading& gpu) const;
  void read_state(nvml::Device device, GpuReading& gpu) const;
  void read_health(nvml::Device device, GpuReading& gpu) const;
  void read_links(nvml::Device device, GpuReading& gpu) const;
  void read_processes(nvml::Device device, GpuReading& gpu) const;
  void read_slices(nvml::Device device, GpuReading& gpu) const;
  void read_counters(nvml::Device device, GpuReading& gpu);
  std::string error_text(nvml::Return code) const;

  /// True where the function is there and succeeds. A GPU that is lost leaves its mark in `gpu`.
  template <class Function, class... Args>
  bool got(GpuReading& gpu, Function function, Args... args) const;

  void* library_ = nullptr;
  std::string why_not_;
  nvml::Api api_;
  std::map<int, nvml::Sample> samples_;  // the counters at the last reading
};

}  // namespace brim::device
