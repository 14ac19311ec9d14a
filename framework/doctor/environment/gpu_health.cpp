// Are the GPUs sound: reachable, without memory errors, not held down by heat.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_gpu_health(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (!gpu.trouble.empty()) {
      return CheckResult{Health::kFail, fmt::format("GPU {}: {}", gpu.index, gpu.trouble),
                         "until then leave it out by CUDA_VISIBLE_DEVICES"};
    }
    if (gpu.ecc_uncorrected.value_or(0) > 0) {
      return CheckResult{Health::kFail,
                         fmt::format("GPU {}: {} memory errors that ECC could not correct",
                                     gpu.index, *gpu.ecc_uncorrected),
                         "stop what runs there and reset it (nvidia-smi --gpu-reset); if they come "
                         "back, have it replaced"};
    }
  }
  for (const device::GpuReading& gpu : s.gpus) {
    if (!gpu.is_slowed) continue;
    return CheckResult{
        Health::kWarn,
        fmt::format("GPU {}: clocks held by {}", gpu.index, fmt::join(*gpu.throttle, ", ")),
        "heat: look at fans and air; power: nvidia-smi -pl raises the limit where the "
        "board allows"};
  }
  return CheckResult{Health::kPass, fmt::format("{} in order", s.gpus.size()), ""};
}

}  // namespace brim::doctor::environment
