// Do the GPUs have all of their PCIe lanes. The link's generation falls while idle; its width does
// not.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<Finding> check_pcie(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  for (const device::GpuReading& gpu : s.gpus) {
    if (!gpu.pcie_width || !gpu.most_pcie_width || *gpu.pcie_width >= *gpu.most_pcie_width)
      continue;
    return Finding{
        Health::kWarn,
        fmt::format("GPU {} has {} of {} lanes", gpu.index, *gpu.pcie_width, *gpu.most_pcie_width),
        "copies take that much longer: reseat the card, or use a slot with all lanes"};
  }
  return Finding{Health::kPass, "full width, or not told", ""};
}

}  // namespace brim::doctor::environment
