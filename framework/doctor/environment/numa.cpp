// Are there several NUMA nodes, and which GPU is at which.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "framework/base/words.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

namespace {

int node_count(const Machine& machine) {
  int count = 0;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(machine.path("sys/devices/system/node"), none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 && name[4] >= '0' && name[4] <= '9') ++count;
  }
  return count;
}

/// NVML writes 00000000:3B:00.0, sysfs 0000:3b:00.0.
std::string sysfs_name(std::string_view name) {
  const std::string bus = lower_case(name);
  return bus.size() > 12 ? bus.substr(bus.size() - 12) : bus;
}

}  // namespace

std::optional<CheckResult> check_numa(const Surroundings& s) {
  const int nodes = node_count(s.machine);
  if (nodes < 2) return CheckResult{Health::kPass, "one node", ""};
  std::string places;
  for (const device::GpuReading& gpu : s.gpus) {
    const auto node = s.machine.line("sys/bus/pci/devices/" + sysfs_name(gpu.bus) + "/numa_node");
    if (node && *node != "-1") places += fmt::format(", GPU {} at node {}", gpu.index, *node);
  }
  return CheckResult{Health::kWarn, fmt::format("{} nodes{}", nodes, places),
                     "a rank that strays over nodes loses memory speed: start ranks by trainrun "
                     "--bind=numa"};
}

}  // namespace brim::doctor::environment
