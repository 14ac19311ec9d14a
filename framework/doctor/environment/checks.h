// What `trainer doctor` looks at without a run: each check judges one thing and says what to do.
// Checks only judge; what they judge by is in Surroundings, which tests make up.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/machine.h"
#include "framework/device/gpus/gpu_reading.h"

namespace brim::doctor::environment {

/// Versions of what this build runs on; empty where it isn't loaded.
struct Software {
  std::string libtorch;       // "2.11.0"
  std::string cuda_runtime;   // "13.0"
  std::string cudnn;          // "9.15.1"
  std::string nccl;           // "2.28.9"
  std::string why_no_cuda;    // empty: the CUDA half is loaded
  std::string architectures;  // of the CUDA half: "80-real 90-real 90-virtual"
};

struct Space {
  int64_t total_bytes = 0, free_bytes = 0;
};

struct Surroundings {
  Machine machine;
  std::vector<device::GpuReading> gpus;  // as NVML shows them
  std::string why_no_nvml;               // empty: NVML answers
  std::string driver, driver_cuda;       // "580.65.06", "13.0"; empty: not known
  std::optional<std::string> cuda_visible_devices;
  Software software;
  std::optional<std::string> wait_policy;  // chosen_wait_policy()
  std::filesystem::path folder;            // where runs are written
  std::optional<Space> disk, shared_memory;
};

enum class Health { kPass, kWarn, kFail };

struct CheckResult {
  Health health = Health::kPass;
  std::string found;
  std::string advice;  // what to do; empty where all is well
};

/// nullopt: nothing to judge here, as where there is no GPU.
using CheckFunction = std::optional<CheckResult> (*)(const Surroundings&);

std::optional<CheckResult> check_driver(const Surroundings& s);
std::optional<CheckResult> check_cuda(const Surroundings& s);
std::optional<CheckResult> check_libtorch(const Surroundings& s);
std::optional<CheckResult> check_cudnn(const Surroundings& s);
std::optional<CheckResult> check_nccl(const Surroundings& s);
std::optional<CheckResult> check_architectures(const Surroundings& s);
std::optional<CheckResult> check_visible_devices(const Surroundings& s);
std::optional<CheckResult> check_gpu_health(const Surroundings& s);
std::optional<CheckResult> check_persistence(const Surroundings& s);
std::optional<CheckResult> check_pcie(const Surroundings& s);
std::optional<CheckResult> check_numa(const Surroundings& s);
std::optional<CheckResult> check_open_files(const Surroundings& s);
std::optional<CheckResult> check_locked_memory(const Surroundings& s);
std::optional<CheckResult> check_shared_memory(const Surroundings& s);
std::optional<CheckResult> check_disk(const Surroundings& s);
std::optional<CheckResult> check_governor(const Surroundings& s);
std::optional<CheckResult> check_huge_pages(const Surroundings& s);
std::optional<CheckResult> check_container(const Surroundings& s);
std::optional<CheckResult> check_swap(const Surroundings& s);
std::optional<CheckResult> check_load(const Surroundings& s);

struct Check {
  std::string_view name;
  CheckFunction run;
};

/// All of them, in the order in which they are shown.
const std::vector<Check>& all_checks();

}  // namespace brim::doctor::environment
