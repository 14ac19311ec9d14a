// Do the GPUs have all of their PCIe lanes. The link's generation falls while idle; its width does
// not.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_pcie(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (!gpu.pcie_width || !gpu.max_pcie_width || *gpu.pcie_width >= *gpu.max_pcie_width) continue;
    return CheckResult{
        Health::kWarn,
        fmt::format("GPU {} has {} of {} lanes", gpu.index, *gpu.pcie_width, *gpu.max_pcie_width),
        "copies take that much longer: reseat the card, or use a slot with all lanes"};
  }
  return CheckResult{Health::kPass, "full width, or unknown", ""};
}

}  // namespace brim::doctor::environment
