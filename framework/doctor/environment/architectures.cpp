// Was the CUDA half compiled for these GPUs.
#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

namespace {

/// "90-real" is code for compute capability 9.0, which runs on 9.x from 9.0 on; "90-virtual" is
/// PTX, which the driver compiles for 9.0 and everything newer.
bool runs_on(const std::string& architectures, int capability) {
  std::istringstream words(architectures);
  for (std::string word; words >> word;) {
    const int compiled = std::atoi(word.c_str());
    if (word.ends_with("-virtual") && capability >= compiled) return true;
    if (capability / 10 == compiled / 10 && capability >= compiled) return true;
  }
  return false;
}

}  // namespace

std::optional<CheckResult> check_architectures(const Surroundings& s) {
  if (s.gpus.empty() || s.software.architectures.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (!gpu.compute_capability || runs_on(s.software.architectures, *gpu.compute_capability)) {
      continue;
    }
    return CheckResult{Health::kFail,
                       fmt::format("GPU {} has compute capability {}.{}; compiled for {}",
                                   gpu.index, *gpu.compute_capability / 10,
                                   *gpu.compute_capability % 10, s.software.architectures),
                       "leave this GPU out by CUDA_VISIBLE_DEVICES, or add its architecture to "
                       "CMAKE_CUDA_ARCHITECTURES in scripts/cmake/LibTorch.cmake and build again"};
  }
  return CheckResult{Health::kPass, fmt::format("compiled for {}", s.software.architectures), ""};
}

}  // namespace brim::doctor::environment
