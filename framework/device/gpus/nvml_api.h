// The part of NVIDIA's management library (NVML) that Brim calls, declared by ourselves, so that
// nothing of NVIDIA's is needed to build. Names, layouts and values are those of NVML's public
// reference (docs.nvidia.com/deploy/nvml-api); only nvml.cpp and the tests' fake library see this.
#pragma once

#include <array>
#include <cstdint>

namespace brim::device::nvml {

/// What every call returns; others mean failure too.
enum class Return : int {
  kSuccess = 0,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kGpuIsLost = 15,
  kResetRequired = 16,
};

struct DeviceHandle;
using Device = DeviceHandle*;
struct SampleBuffer;
using Sample = SampleBuffer*;

struct Memory {
  uint64_t total, free, used;  // bytes; used includes what the driver reserves
};

struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
/// NVML's rule for versioned structs: the size, and the version in the top byte.
inline constexpr uint32_t kMemoryV2 = sizeof(MemoryV2) | (2U << 24U);

struct Utilization {
  uint32_t gpu, memory;  // percent of the last sample period
};

struct ProcessInfo {
  uint32_t pid;
  uint64_t used_memory;  // bytes; all ones: not known
  uint32_t gpu_instance, compute_instance;
};

struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  uint32_t domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

struct GpmSupport {
  uint32_t version;  // 1
  uint32_t is_supported;
};

enum GpmMetricId : uint32_t { kSmUtil = 2, kAnyTensorUtil = 5, kDramBandwidthUtil = 10 };

struct GpmMetric {
  uint32_t id;
  Return result;
  double value;  // percent
  const char *short_name, *long_name, *unit;
};

struct GpmMetrics {
  uint32_t version;  // 1
  uint32_t count;
  Sample first, second;
  std::array<GpmMetric, 210> metrics;
};

inline constexpr uint32_t kTemperatureGpu = 0;
inline constexpr uint32_t kClockSm = 1;
inline constexpr uint32_t kClockMemory = 2;
inline constexpr uint32_t kEccCorrected = 0;
inline constexpr uint32_t kEccUncorrected = 1;
inline constexpr uint32_t kEccSinceReload = 0;
inline constexpr uint32_t kMaxLinks = 18;

/// Reasons for clocks below the highest, as bits.
inline constexpr uint64_t kIdleClocks = 0x1;
inline constexpr uint64_t kApplicationClocks = 0x2;
inline constexpr uint64_t kPowerCap = 0x4;
inline constexpr uint64_t kHardwareSlowdown = 0x8;
inline constexpr uint64_t kSyncBoost = 0x10;
inline constexpr uint64_t kThermalSoftware = 0x20;
inline constexpr uint64_t kThermalHardware = 0x40;
inline constexpr uint64_t kPowerBrake = 0x80;
inline constexpr uint64_t kDisplayClocks = 0x100;

/// The library's functions; null where this version of it has none of that name.
struct Api {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_text)(Return) = nullptr;
  Return (*driver_version)(char*, uint32_t) = nullptr;
  Return (*cuda_version)(int*) = nullptr;
  Return (*count)(uint32_t*) = nullptr;
  Return (*handle)(uint32_t, Device*) = nullptr;
  Return (*uuid)(Device, char*, uint32_t) = nullptr;
  Return (*name)(Device, char*, uint32_t) = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  Return (*capability)(Device, int*, int*) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*temperature)(Device, uint32_t, uint32_t*) = nullptr;
  Return (*power)(Device, uint32_t*) = nullptr;        // milliwatts
  Return (*power_limit)(Device, uint32_t*) = nullptr;  // milliwatts
  Return (*clock)(Device, uint32_t, uint32_t*) = nullptr;
  Return (*max_clock)(Device, uint32_t, uint32_t*) = nullptr;
  Return (*throttle)(Device, uint64_t*) = nullptr;
  Return (*ecc_mode)(Device, uint32_t*, uint32_t*) = nullptr;
  Return (*ecc_errors)(Device, uint32_t, uint32_t, uint64_t*) = nullptr;
  Return (*pcie_generation)(Device, uint32_t*) = nullptr;
  Return (*max_pcie_generation)(Device, uint32_t*) = nullptr;
  Return (*pcie_width)(Device, uint32_t*) = nullptr;
  Return (*max_pcie_width)(Device, uint32_t*) = nullptr;
  Return (*link_state)(Device, uint32_t, uint32_t*) = nullptr;
  Return (*processes)(Device, uint32_t*, ProcessInfo*) = nullptr;
  Return (*persistence)(Device, uint32_t*) = nullptr;
  Return (*mig_mode)(Device, uint32_t*, uint32_t*) = nullptr;
  Return (*max_slices)(Device, uint32_t*) = nullptr;
  Return (*slice)(Device, uint32_t, Device*) = nullptr;
  Return (*gpm_support)(Device, GpmSupport*) = nullptr;
  Return (*gpm_alloc)(Sample*) = nullptr;
  Return (*gpm_free)(Sample) = nullptr;
  Return (*gpm_sample)(Device, Sample) = nullptr;
  Return (*gpm_metrics)(GpmMetrics*) = nullptr;
};

}  // namespace brim::device::nvml
