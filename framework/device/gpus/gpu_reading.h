// What is known of a GPU at one moment. A missing value is one that the GPU, its driver or our
// rights do not give; it is never zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace brim::device {

struct GpuProcess {
  int64_t pid = 0;
  std::string name;  // as the kernel has it; empty: gone, or another container's
  std::optional<int64_t> memory_bytes;
};

/// A MIG instance.
struct GpuSlice {
  std::string uuid;  // "MIG-…"
  std::optional<int64_t> memory_total_bytes, memory_free_bytes;
};

struct GpuReading {
  int index = 0;  // by PCI bus, as nvidia-smi numbers GPUs
  /// Empty: it answers. Else in words why it cannot be used, as in "lost: …".
  std::string trouble;
  std::string uuid;  // "GPU-…"; empty where it is not known
  std::string name;
  std::string bus;                        // "00000000:3B:00.0"
  std::optional<int> compute_capability;  // 90 is 9.0

  std::optional<int64_t> memory_total_bytes, memory_used_bytes, memory_free_bytes;

  // Share of the time in which anything ran, or memory was touched: a kernel on one SM counts as
  // much as one on all of them.
  std::optional<double> busy_percent, memory_busy_percent;
  // From GPM's counters (Hopper and later) between two readings: share of SMs at work, of time
  // their tensor cores were, and of the memory's bandwidth.
  std::optional<double> sm_percent, tensor_percent, bandwidth_percent;

  std::optional<int> temperature_c;
  std::optional<double> power_w, power_limit_w;
  std::optional<int> sm_mhz, max_sm_mhz, memory_mhz, max_memory_mhz;
  std::optional<std::vector<std::string>> throttle;  // reasons in words; empty: none
  bool is_slowed = false;  // by heat, power or the hardware, and not just idle

  std::optional<bool> has_ecc;
  std::optional<int64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<int> pcie_generation, max_pcie_generation, pcie_width, max_pcie_width;
  std::optional<int> nvlinks;  // active ones; absent where there is no NVLink
  std::optional<bool> persistence;
  std::optional<std::vector<GpuProcess>> processes;  // with a CUDA context

  bool is_sliced = false;  // MIG is on: only slices can be used
  std::vector<GpuSlice> slices;
};

}  // namespace brim::device
