#include "framework/device/gpus/device_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/words.h"

namespace brim::device {
namespace {

std::optional<size_t> index_of(std::string_view word) {
  size_t index = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), index);
  const bool is_number = code == std::errc() && end == word.data() + word.size();
  return is_number ? std::optional(index) : std::nullopt;
}

bool names_a_gpu(const std::string& word) {
  if (const auto index = index_of(word)) return *index < 128;
  const bool is_uuid = word.starts_with("GPU-") || word.starts_with("MIG-");
  return is_uuid && word.size() > 4 && word.find_first_of(" \t") == std::string::npos;
}

[[noreturn]] void refuse(const std::string& list, const std::string& found) {
  throw Error(
      Exit::kRecipe,
      "device '{}': expected \"auto\", \"cpu\" (\"cpu,cpu\" for two ranks), a GPU's index as in "
      "\"0\" or \"cuda:0\", its UUID, or several different GPUs as in \"0,1\"; found {}",
      list, found);
}

VisibleGpu visible(const GpuReading& gpu) {
  if (!gpu.is_sliced || gpu.slices.empty())
    return {.uuid = gpu.uuid, .gpu = gpu, .is_slice = false};
  return {.uuid = gpu.slices[0].uuid, .gpu = gpu, .is_slice = true};
}

/// The one GPU or slice that a word of CUDA_VISIBLE_DEVICES names.
std::optional<VisibleGpu> named(const std::vector<GpuReading>& gpus, const std::string& word) {
  if (const auto index = index_of(word)) {
    return *index < gpus.size() ? std::optional(visible(gpus[*index])) : std::nullopt;
  }
  if (word.size() <= 4) return std::nullopt;
  std::vector<VisibleGpu> found;
  for (const GpuReading& gpu : gpus) {
    if (gpu.uuid.starts_with(word)) found.push_back(visible(gpu));
    for (const GpuSlice& slice : gpu.slices) {
      if (slice.uuid.starts_with(word)) {
        found.push_back({.uuid = slice.uuid, .gpu = gpu, .is_slice = true});
      }
    }
  }
  return found.size() == 1 ? std::optional(found[0]) : std::nullopt;
}

std::string without_blanks(std::string_view word) {
  const size_t begin = word.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return std::string(word.substr(begin, word.find_last_not_of(" \t") - begin + 1));
}

}  // namespace

DeviceList parse_device_list(const std::string& list) {
  DeviceList result;
  if (list == "auto") return result;
  if (list == "cuda") {
    result.kind = DeviceList::Kind::kByRank;
    return result;
  }
  const std::vector<std::string_view> pieces = split(list);
  std::vector<std::string> words(pieces.begin(), pieces.end());
  if (std::ranges::all_of(words, [](const std::string& word) { return word == "cpu"; })) {
    result.kind = DeviceList::Kind::kCpu;
    result.ranks = static_cast<int>(words.size());
    return result;
  }
  for (std::string& word : words) {
    if (word == "cpu" || word == "auto") refuse(list, fmt::format("'{}' beside other words", word));
    if (word.starts_with("cuda:") && index_of(word.substr(5))) word.erase(0, 5);
    if (!names_a_gpu(word)) {
      refuse(list, word.empty() ? "an empty place" : fmt::format("'{}'", word));
    }
    if (std::ranges::count(words, word) > 1) refuse(list, fmt::format("'{}' twice", word));
  }
  result.kind = DeviceList::Kind::kGpus;
  result.ranks = static_cast<int>(words.size());
  result.gpus = std::move(words);
  return result;
}

std::string VisibleGpu::word() const { return uuid.empty() ? fmt::format("{}", gpu.index) : uuid; }

std::string VisibleGpu::shown() const {
  std::string text = fmt::format("GPU {}", gpu.index);
  if (is_slice) text += fmt::format(", slice {}", uuid);
  return gpu.name.empty() ? text : fmt::format("{} ({})", text, gpu.name);
}

std::vector<VisibleGpu> visible_gpus(const std::vector<GpuReading>& gpus,
                                     const char* cuda_visible_devices) {
  std::vector<VisibleGpu> result;
  if (cuda_visible_devices == nullptr) {
    for (const GpuReading& gpu : gpus) result.push_back(visible(gpu));
    return result;
  }
  for (const std::string_view word : split(cuda_visible_devices)) {
    std::optional<VisibleGpu> found = named(gpus, without_blanks(word));
    if (!found) break;
    const auto is_same = [&](const VisibleGpu& other) {
      return other.gpu.index == found->gpu.index && other.uuid == found->uuid;
    };
    if (std::ranges::any_of(result, is_same)) return {};
    result.push_back(*std::move(found));
  }
  return result;
}

}  // namespace brim::device
