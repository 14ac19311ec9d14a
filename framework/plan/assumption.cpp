#include "framework/plan/assumption.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/words.h"

namespace brim::plan {
namespace {

/// A device as its maker's data sheet has it; operations a second are device/peak.cpp's.
struct Device {
  std::string_view name;
  std::string_view gpu;
  int64_t memory_gb;
  double gb_per_s;  // of its memory
  std::string_view link;
  double usable = 0.98;  // of the memory; the driver has the rest
};

constexpr double kWithCodes = 0.93;  // GDDR keeps its error correction's codes in the same memory

/// Of one name, the first is meant where no memory is given.
constexpr std::array kDevices = {
    // NVIDIA A100 Tensor Core GPU data sheet (2021), SXM.
    Device{"A100", "A100", 80, 2039, "nvlink3"},
    Device{"A100", "A100", 40, 1555, "nvlink3"},
    // NVIDIA H100 and H200 Tensor Core GPU data sheets (2023, 2024), SXM.
    Device{"H100", "H100", 80, 3350, "nvlink4"},
    Device{"H200", "H200", 141, 4800, "nvlink4"},
    // NVIDIA HGX B200 data sheet (2025), a GPU's part.
    Device{"B200", "B200", 180, 7700, "nvlink5"},
    // NVIDIA L4 and L40S data sheets (2023).
    Device{"L4", "L4", 24, 300, "pcie4", kWithCodes},
    Device{"L40S", "L40S", 48, 864, "pcie4", kWithCodes},
    // NVIDIA Tesla V100 data sheet (2020), SXM2.
    Device{"V100", "V100", 32, 900, "nvlink2"},
    Device{"V100", "V100", 16, 900, "nvlink2"},
    // NVIDIA Ada GPU architecture white paper (2022), appendix A.
    Device{"RTX4090", "RTX 4090", 24, 1008, "pcie4"},
};

struct NamedLink {
  std::string_view name;
  double gb_per_s;  // for one device, one way
  double hop_s;
};

/// Rates are the makers' and the standards'; a hop takes what docs/scaling.md says.
constexpr std::array kLinks = {
    // NVIDIA NVLink: half of what the data sheets give for both ways.
    NamedLink{"nvlink2", 150, 3e-6},
    NamedLink{"nvlink3", 300, 3e-6},
    NamedLink{"nvlink4", 450, 3e-6},
    NamedLink{"nvlink5", 900, 3e-6},
    // PCI Express 4.0 and 5.0, 16 lanes.
    NamedLink{"pcie4", 31.5, 5e-6},
    NamedLink{"pcie5", 63, 5e-6},
    // InfiniBand HDR, NDR and XDR, a port for each device.
    NamedLink{"hdr", 25, 10e-6},
    NamedLink{"ndr", 50, 10e-6},
    NamedLink{"xdr", 100, 10e-6},
    // Ethernet.
    NamedLink{"10gbit", 1.25, 30e-6},
    NamedLink{"25gbit", 3.125, 30e-6},
    NamedLink{"100gbit", 12.5, 30e-6},
    NamedLink{"200gbit", 25, 10e-6},
    NamedLink{"400gbit", 50, 10e-6},
};

constexpr int64_t kMaxDevices = 1 << 16;
constexpr int64_t kDevicesOfMachine = 8;
constexpr double kRealShare = 0.8;  // what a ring gets of a link, as in benchmarks/scaling_model.py
constexpr double kBackwardShare = 2.0 / 3;

/// In capitals or not.
bool is_same(std::string_view word, std::string_view name) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(word, name, {}, lower, lower);
}

std::string device_names() {
  std::string names;
  for (const Device& device : kDevices) {
    names += fmt::format("{}{}-{}GB", names.empty() ? "" : ", ", device.name, device.memory_gb);
  }
  return names;
}

std::vector<std::string_view> link_names() {
  std::vector<std::string_view> names = {"nvlink"};
  for (const NamedLink& link : kLinks) names.push_back(link.name);
  return names;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw UsageError("--assume {}: {}; expected devices and links as in 8xH100-80GB,nvlink",
                   in_quotes(text), why);
}

int64_t read_count(std::string_view text, std::string_view word) {
  int64_t count = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (code != std::errc() || end != word.data() + word.size() || count < 1 || count > kMaxDevices) {
    refuse(text, fmt::format("found no number of devices from 1 to {}", kMaxDevices));
  }
  return count;
}

const Device& find_device(std::string_view text, std::string_view word) {
  for (const Device& device : kDevices) {
    if (is_same(word, device.name) ||
        is_same(word, fmt::format("{}-{}GB", device.name, device.memory_gb))) {
      return device;
    }
  }
  refuse(text, fmt::format("{} is not among {}", in_quotes(word), device_names()));
}

const NamedLink& find_link(std::string_view text, std::string_view word, std::string_view usual) {
  const bool is_usual = is_same(word, "nvlink") && usual.starts_with("nvlink");
  const std::string_view name = is_usual ? usual : word;
  const auto found =
      std::ranges::find_if(kLinks, [&](const NamedLink& link) { return is_same(name, link.name); });
  if (found != kLinks.end()) return *found;
  const std::string why = fmt::format("{} is no link of such devices; links are {}",
                                      in_quotes(word), fmt::join(link_names(), ", "));
  refuse(text, why);
}

Link link_of(const NamedLink& link) {
  return {.bytes_per_s = kRealShare * 1e9 * link.gb_per_s, .hop_s = link.hop_s};
}

}  // namespace

std::string Assumption::text() const {
  return fmt::format("{} × {}, {}{}", devices, device, link,
                     devices > kDevicesOfMachine && network != link ? " and " + network : "");
}

Assumption read_assumption(std::string_view text) {
  const std::vector<std::string_view> words = split(text);
  const size_t times = words[0].find_first_of("xX");
  if (times == std::string_view::npos || words.size() > 3) {
    refuse(text, "found no such list");
  }
  Assumption result;
  result.devices = read_count(text, words[0].substr(0, times));
  const Device& device = find_device(text, words[0].substr(times + 1));
  const NamedLink& link = find_link(text, words.size() > 1 ? words[1] : device.link, device.link);
  const NamedLink& network = words.size() > 2 ? find_link(text, words[2], device.link) : link;
  result.device = fmt::format("{}-{}GB", device.name, device.memory_gb);
  result.gpu = device.gpu;
  result.memory_bytes = static_cast<int64_t>(device.usable * static_cast<double>(device.memory_gb) *
                                             static_cast<double>(1 << 30));
  result.bytes_per_s = 1e9 * device.gb_per_s;
  result.link = link.name;
  result.network = network.name;
  result.between = {.all_reduce = link_of(link),
                    .gather = link_of(link),
                    .scatter = link_of(link),
                    .machines = link_of(network),
                    .ranks_of_machine = kDevicesOfMachine,
                    .hidden_share = kBackwardShare};
  return result;
}

}  // namespace brim::plan
