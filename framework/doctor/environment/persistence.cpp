// Does the driver stay loaded between processes; loading it costs a start seconds.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<Finding> check_persistence(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (gpu.persistence.value_or(true)) continue;
    return Finding{Health::kWarn, fmt::format("off on GPU {}", gpu.index),
                   "starts take seconds longer: run nvidia-persistenced, or nvidia-smi -pm 1"};
  }
  return Finding{Health::kPass, "on, or not told", ""};
}

}  // namespace brim::doctor::environment
