// Does the driver stay loaded between processes; loading it costs a start seconds.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_persistence(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (gpu.persistence.value_or(true)) continue;
    return CheckResult{Health::kWarn, fmt::format("off on GPU {}", gpu.index),
                       "starts take seconds longer: run nvidia-persistenced, or nvidia-smi -pm 1"};
  }
  return CheckResult{Health::kPass, "on, or unknown", ""};
}

}  // namespace brim::doctor::environment
