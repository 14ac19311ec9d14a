#include "framework/site/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "framework/base/units.h"
#include "framework/base/words.h"
#include "framework/device/gpus/device_list.h"

namespace brim::site {
namespace {

constexpr int kMaxGpus = 128;

std::optional<int> gpu_index(std::string_view text) {
  int index = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool is_whole = code == std::errc() && end == text.data() + text.size();
  return is_whole && index >= 0 && index < kMaxGpus ? std::optional(index) : std::nullopt;
}

bool is_uuid(std::string_view text) {
  return (text.starts_with("GPU-") || text.starts_with("MIG-")) && text.size() > 4;
}

}  // namespace

std::string Device::shown() const {
  if (is_cpu()) return "the CPU";
  const bool is_slice = word.starts_with("MIG-");
  if (!index || is_slice) return (is_slice ? "slice " : "GPU ") + word;
  return fmt::format("GPU {}", *index);
}

bool Device::is_named(std::string_view name) const {
  if (name == word) return true;
  if (const auto wanted = gpu_index(name)) return index == wanted;
  return is_uuid(name) && word.starts_with(name);
}

bool is_device_name(std::string_view name) {
  return name == "cpu" || gpu_index(name) || is_uuid(name);
}

Device device_of(const device::VisibleGpu& gpu) {
  return {.word = gpu.word(), .index = gpu.gpu.index};
}

std::vector<Device> visible_devices(const device::Census& census, const char* cuda_visible_devices,
                                    size_t at_least) {
  std::vector<Device> devices;
  if (census.is_known) {
    for (const auto& gpu : device::visible_gpus(census.gpus, cuda_visible_devices)) {
      devices.push_back(device_of(gpu));
    }
    return devices;
  }
  std::vector<std::string_view> words;
  if (cuda_visible_devices != nullptr) words = split(cuda_visible_devices);
  for (size_t i = 0; i < std::max(words.size(), at_least); ++i) {
    std::string word(i < words.size() ? words[i] : std::string_view());
    if (word.empty()) word = std::to_string(i);
    devices.push_back({.word = word, .index = gpu_index(word)});
  }
  return devices;
}

std::string shown(const std::vector<Device>& devices) {
  std::string text;
  int64_t on_cpu = 0;
  std::set<std::string> seen;
  for (const Device& device : devices) {
    on_cpu += device.is_cpu() ? 1 : 0;
    if (!seen.insert(device.word).second) continue;
    text += (text.empty() ? "" : ", ") + device.shown();
  }
  return on_cpu > 1 ? fmt::format("{} for {}", text, format_plural(on_cpu, "rank")) : text;
}

size_t count_distinct(const std::vector<Device>& devices) {
  std::set<std::string> gpus;
  size_t on_cpu = 0;
  for (const Device& device : devices) {
    if (device.is_cpu()) {
      ++on_cpu;
    } else {
      gpus.insert(device.word);
    }
  }
  return gpus.size() + on_cpu;
}

}  // namespace brim::site
