#include "framework/device/gpus/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "framework/base/units.h"

namespace brim::device {
namespace {

using nlohmann::json;

template <class T>
json value_of(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

std::string capability(int value) { return fmt::format("{}.{}", value / 10, value % 10); }

std::string memory(const GpuReading& gpu) {
  if (!gpu.memory_total_bytes || !gpu.memory_used_bytes || !gpu.memory_free_bytes) return {};
  return fmt::format("memory: {} used of {}, {} free", format_bytes(*gpu.memory_used_bytes),
                     format_bytes(*gpu.memory_total_bytes), format_bytes(*gpu.memory_free_bytes));
}

/// Counters where there are some; else utilisation, and what it cannot tell.
std::string activity(const GpuReading& gpu) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const std::optional<double>& percent) {
    if (percent) parts.push_back(fmt::format("{} {:.1f} %", what, *percent));
  };
  add("SMs", gpu.sm_percent);
  add("tensor cores", gpu.tensor_percent);
  add("memory bandwidth", gpu.bandwidth_percent);
  if (!parts.empty()) return fmt::format("activity: {} (counters)", fmt::join(parts, ", "));
  if (!gpu.busy_percent) return {};
  return fmt::format(
      "utilisation: something ran {:.0f} % of the time{} (one kernel on one SM counts as all: "
      "this GPU or driver gives no counters of SMs and tensor cores)",
      *gpu.busy_percent,
      gpu.memory_busy_percent
          ? fmt::format(", memory was touched {:.0f} %", *gpu.memory_busy_percent)
          : "");
}

std::string clocks(const char* what, const std::optional<int>& now,
                   const std::optional<int>& most) {
  if (!now) return {};
  return most ? fmt::format("{} {} of {} MHz", what, *now, *most)
              : fmt::format("{} {} MHz", what, *now);
}

std::string health(const GpuReading& gpu) {
  std::vector<std::string> parts;
  if (gpu.temperature_c) parts.push_back(fmt::format("{} °C", *gpu.temperature_c));
  if (gpu.power_w) {
    parts.push_back(gpu.power_limit_w
                        ? fmt::format("{:.0f} of {:.0f} W", *gpu.power_w, *gpu.power_limit_w)
                        : fmt::format("{:.0f} W", *gpu.power_w));
  }
  for (const std::string& part : {clocks("SM", gpu.sm_mhz, gpu.max_sm_mhz),
                                  clocks("memory", gpu.memory_mhz, gpu.max_memory_mhz)}) {
    if (!part.empty()) parts.push_back(part);
  }
  if (gpu.throttle && !gpu.throttle->empty()) {
    parts.push_back(fmt::format("clocks held by: {}", fmt::join(*gpu.throttle, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string pcie(const GpuReading& gpu) {
  std::string text = fmt::format("PCIe {}.0 x{}", *gpu.pcie_generation, *gpu.pcie_width);
  if (gpu.max_pcie_generation && gpu.max_pcie_width) {
    text += fmt::format(" (of {}.0 x{})", *gpu.max_pcie_generation, *gpu.max_pcie_width);
  }
  return text;
}

std::string surroundings(const GpuReading& gpu) {
  std::vector<std::string> parts;
  if (gpu.has_ecc) parts.emplace_back(*gpu.has_ecc ? "ECC on" : "ECC off");
  if (gpu.ecc_corrected && gpu.ecc_uncorrected) {
    parts.push_back(
        fmt::format("{} errors corrected and {} not", *gpu.ecc_corrected, *gpu.ecc_uncorrected));
  }
  if (gpu.pcie_generation && gpu.pcie_width) parts.push_back(pcie(gpu));
  if (gpu.nvlinks) parts.push_back(fmt::format("{} NVLinks", *gpu.nvlinks));
  if (gpu.persistence) {
    parts.emplace_back(*gpu.persistence ? "persistence mode on" : "persistence mode off");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string processes(const GpuReading& gpu) {
  if (!gpu.processes || gpu.processes->empty()) return {};
  std::vector<std::string> parts;
  for (const GpuProcess& process : *gpu.processes) {
    std::string part = fmt::format("{}", process.pid);
    if (!process.name.empty()) part += " " + process.name;
    if (process.memory_bytes) part += " " + format_bytes(*process.memory_bytes);
    parts.push_back(std::move(part));
  }
  return fmt::format("processes: {}", fmt::join(parts, ", "));
}

}  // namespace

std::string describe(const GpuReading& gpu) {
  std::string text = fmt::format("GPU {}", gpu.index);
  if (!gpu.name.empty()) text += "  " + gpu.name;
  if (!gpu.uuid.empty()) text += "  " + gpu.uuid;
  if (gpu.compute_capability) {
    text += "  compute capability " + capability(*gpu.compute_capability);
  }
  text += '\n';
  for (const std::string& line :
       {gpu.trouble, memory(gpu), activity(gpu), health(gpu), surroundings(gpu), processes(gpu)}) {
    if (!line.empty()) text += "       " + line + "\n";
  }
  for (const GpuSlice& slice : gpu.slices) {
    text += "       slice " + slice.uuid;
    if (slice.memory_total_bytes && slice.memory_free_bytes) {
      text += fmt::format(": {} free of {}", format_bytes(*slice.memory_free_bytes),
                          format_bytes(*slice.memory_total_bytes));
    }
    text += '\n';
  }
  return text;
}

json to_json(const GpuReading& gpu) {
  json slices = json::array();
  for (const GpuSlice& slice : gpu.slices) {
    slices.push_back({{"uuid", slice.uuid},
                      {"memory_total_bytes", value_of(slice.memory_total_bytes)},
                      {"memory_free_bytes", value_of(slice.memory_free_bytes)}});
  }
  json running = nullptr;
  if (gpu.processes) {
    running = json::array();
    for (const GpuProcess& process : *gpu.processes) {
      running.push_back({{"pid", process.pid},
                         {"name", process.name},
                         {"memory_bytes", value_of(process.memory_bytes)}});
    }
  }
  return {
      {"index", gpu.index},
      {"trouble", gpu.trouble.empty() ? json(nullptr) : json(gpu.trouble)},
      {"uuid", gpu.uuid},
      {"name", gpu.name},
      {"bus", gpu.bus},
      {"compute_capability",
       gpu.compute_capability ? json(capability(*gpu.compute_capability)) : json(nullptr)},
      {"memory_total_bytes", value_of(gpu.memory_total_bytes)},
      {"memory_used_bytes", value_of(gpu.memory_used_bytes)},
      {"memory_free_bytes", value_of(gpu.memory_free_bytes)},
      {"busy_percent", value_of(gpu.busy_percent)},
      {"memory_busy_percent", value_of(gpu.memory_busy_percent)},
      {"sm_percent", value_of(gpu.sm_percent)},
      {"tensor_percent", value_of(gpu.tensor_percent)},
      {"bandwidth_percent", value_of(gpu.bandwidth_percent)},
      {"temperature_c", value_of(gpu.temperature_c)},
      {"power_w", value_of(gpu.power_w)},
      {"power_limit_w", value_of(gpu.power_limit_w)},
      {"sm_mhz", value_of(gpu.sm_mhz)},
      {"max_sm_mhz", value_of(gpu.max_sm_mhz)},
      {"memory_mhz", value_of(gpu.memory_mhz)},
      {"max_memory_mhz", value_of(gpu.max_memory_mhz)},
      {"throttle", value_of(gpu.throttle)},
      {"ecc", value_of(gpu.has_ecc)},
      {"ecc_corrected", value_of(gpu.ecc_corrected)},
      {"ecc_uncorrected", value_of(gpu.ecc_uncorrected)},
      {"pcie_generation", value_of(gpu.pcie_generation)},
      {"max_pcie_generation", value_of(gpu.max_pcie_generation)},
      {"pcie_width", value_of(gpu.pcie_width)},
      {"max_pcie_width", value_of(gpu.max_pcie_width)},
      {"nvlinks", value_of(gpu.nvlinks)},
      {"persistence", value_of(gpu.persistence)},
      {"processes", running},
      {"slices", slices},
  };
}

}  // namespace brim::device
