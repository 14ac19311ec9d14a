#include "framework/device/gpus/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/device/gpus/device_list.h"
#include "framework/device/gpus/nvml.h"

namespace brim::device {
namespace {

/// How much of a GPU is in use, in words.
std::string load_of(const GpuReading& gpu) {
  std::vector<std::string> parts;
  if (gpu.memory_free_bytes && gpu.memory_total_bytes) {
    parts.push_back(fmt::format("{} of {} free", format_bytes(*gpu.memory_free_bytes),
                                format_bytes(*gpu.memory_total_bytes)));
  }
  if (gpu.busy_percent)
    parts.push_back(fmt::format("at work {:.0f} % of the time", *gpu.busy_percent));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// What is not known counts as idle: slices, for instance, have no utilisation.
bool is_idle(const VisibleGpu& gpu, const DeviceConfig& config) {
  std::optional<int64_t> free = gpu.gpu.memory_free_bytes;
  std::optional<int64_t> total = gpu.gpu.memory_total_bytes;
  for (const GpuSlice& slice : gpu.gpu.slices) {
    if (slice.uuid != gpu.uuid) continue;
    free = slice.memory_free_bytes;
    total = slice.memory_total_bytes;
  }
  const bool has_room =
      !free || !total ||
      static_cast<double>(*free) >= config.idle_free_memory * static_cast<double>(*total);
  const bool is_calm = gpu.is_slice || !gpu.gpu.busy_percent ||
                       *gpu.gpu.busy_percent <= 100 * config.idle_utilisation;
  return has_room && is_calm;
}

/// Chooses among the visible GPUs and keeps the locks.
class Chooser {
 public:
  Chooser(const DeviceConfig& config, std::vector<VisibleGpu> visible)
      : config_(config), visible_(std::move(visible)) {
    // The calmest first; of those with the most memory free; of those the lowest index.
    const auto load = [](const VisibleGpu& gpu) {
      return std::tuple(gpu.gpu.busy_percent.value_or(0), -gpu.gpu.memory_free_bytes.value_or(0),
                        gpu.gpu.index);
    };
    calmest_ = visible_;
    std::ranges::stable_sort(calmest_,
                             [&](const auto& a, const auto& b) { return load(a) < load(b); });
  }

  void take_auto() {
    result_.is_auto = true;
    if (visible_.empty()) {
      result_.notes.emplace_back("no GPU is visible to this process: on the CPU");
      return;
    }
    std::string why;
    if (const auto idle = take_idle(why)) {
      use({*idle});
      return;
    }
    const std::string problem = fmt::format("no GPU is idle ({})", why);
    const auto any = std::ranges::find_if(
        calmest_, [](const VisibleGpu& gpu) { return gpu.gpu.trouble.empty(); });
    if (config_.fallback == Fallback::kOtherGpu && any != calmest_.end()) {
      warn("{}: taking {} all the same (device.fallback = \"other_gpu\")", problem, any->shown());
      result_.locks.emplace_back(any->word(), GpuLock::Kind::kShared);
      use({*any});
    } else if (config_.fallback == Fallback::kCpu) {
      warn("{}: training on the CPU (device.fallback = \"cpu\")", problem);
    } else {
      throw Error(Exit::kResource,
                  "{}. Wait, name a GPU by --devices, change what device.idle_free_memory and "
                  "device.idle_utilisation call idle, or set device.fallback",
                  problem);
    }
  }

  void take(const std::vector<std::string>& words) {
    std::vector<VisibleGpu> chosen;
    std::vector<std::pair<Exit, std::string>> missing;
    for (const std::string& word : words) {
      const auto found = find(word);
      if (!found) {
        missing.emplace_back(Exit::kRecipe, not_there(word));
      } else if (!found->gpu.trouble.empty()) {
        missing.emplace_back(Exit::kResource,
                             fmt::format("{}: {}", found->shown(), found->gpu.trouble));
      } else if (is_chosen(chosen, *found)) {
        throw Error(Exit::kRecipe, "device '{}': {} is there twice", fmt::join(words, ","),
                    found->shown());
      } else {
        chosen.push_back(*found);
      }
    }
    for (const VisibleGpu& gpu : chosen) take_as_told(gpu);
    for (const auto& [status, problem] : missing) {
      if (config_.fallback == Fallback::kError) throw Error(status, "{}", problem);
      if (config_.fallback == Fallback::kCpu) {
        warn("{}: training on the CPU (device.fallback = \"cpu\")", problem);
        result_.locks.clear();
        return;
      }
      chosen.push_back(take_other(problem, chosen));
    }
    use(chosen);
  }

  Selection result() && { return std::move(result_); }

 private:
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    result_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  static bool is_chosen(const std::vector<VisibleGpu>& chosen, const VisibleGpu& gpu) {
    return std::ranges::any_of(chosen, [&](const VisibleGpu& other) {
      return other.gpu.index == gpu.gpu.index && other.uuid == gpu.uuid;
    });
  }

  /// By its place among the visible ones, or by the beginning of its UUID.
  std::optional<VisibleGpu> find(const std::string& word) const {
    size_t index = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), index);
    if (code == std::errc() && end == word.data() + word.size()) {
      return index < visible_.size() ? std::optional(visible_[index]) : std::nullopt;
    }
    std::optional<VisibleGpu> found;
    for (const VisibleGpu& gpu : visible_) {
      if (!gpu.uuid.starts_with(word)) continue;
      if (found) {
        throw Error(Exit::kRecipe, "device '{}': the UUIDs of {} and {} begin so; give more of it",
                    word, found->shown(), gpu.shown());
      }
      found = gpu;
    }
    return found;
  }

  std::string not_there(const std::string& word) const {
    if (visible_.empty()) {
      return fmt::format(
          "device '{}' is not there: CUDA_VISIBLE_DEVICES leaves this process no GPU", word);
    }
    return fmt::format(
        "device '{}' is not there: this process sees {} GPU{} (CUDA_VISIBLE_DEVICES decides which, "
        "trainer devices shows them). Choose from 0 to {}, or by UUID",
        word, visible_.size(), visible_.size() == 1 ? "" : "s", visible_.size() - 1);
  }

  /// The calmest idle GPU that no other run has claimed; nullopt, and why not, without one.
  std::optional<VisibleGpu> take_idle(std::string& why,
                                      const std::vector<VisibleGpu>& except = {}) {
    std::vector<std::string> reasons;
    for (const VisibleGpu& gpu : calmest_) {
      if (is_chosen(except, gpu)) continue;
      if (!gpu.gpu.trouble.empty()) {
        reasons.push_back(fmt::format("{}: {}", gpu.shown(), gpu.gpu.trouble));
      } else if (!is_idle(gpu, config_)) {
        reasons.push_back(fmt::format("{}: {}", gpu.shown(), load_of(gpu.gpu)));
      } else if (claim(gpu, GpuLock::Kind::kSole)) {
        return gpu;
      } else {
        reasons.push_back(fmt::format("{}: taken by another run of Brim", gpu.shown()));
      }
    }
    why = fmt::format("{}", fmt::join(reasons, "; "));
    return std::nullopt;
  }

  void take_as_told(const VisibleGpu& gpu) {
    if (!is_idle(gpu, config_)) warn("{} is in use: {}", gpu.shown(), load_of(gpu.gpu));
    if (!claim(gpu, GpuLock::Kind::kShared))
      warn("{} is taken by another run of Brim", gpu.shown());
  }

  VisibleGpu take_other(const std::string& problem, const std::vector<VisibleGpu>& except) {
    std::string why;
    if (const auto other = take_idle(why, except)) {
      warn("{}: taking {} in its place (device.fallback = \"other_gpu\")", problem, other->shown());
      return *other;
    }
    throw Error(Exit::kResource, "{}; and no other GPU is idle{}{}{}", problem,
                why.empty() ? "" : " (", why, why.empty() ? "" : ")");
  }

  bool claim(const VisibleGpu& gpu, GpuLock::Kind kind) {
    GpuLock claim(gpu.word(), kind);
    if (claim.result() == GpuLock::Result::kTakenByOther) return false;
    if (claim.result() == GpuLock::Result::kNoLocks) {
      warn("no lock file can be made in {}: two runs may choose the same GPU",
           GpuLock::lock_folder().string());
    }
    result_.locks.push_back(std::move(claim));
    return true;
  }

  void use(const std::vector<VisibleGpu>& gpus) {
    result_.where = Selection::Where::kGpus;
    result_.ranks = static_cast<int>(gpus.size());
    for (const VisibleGpu& gpu : gpus) {
      result_.visible += (result_.visible.empty() ? "" : ",") + gpu.word();
      result_.notes.push_back(fmt::format("on {}, {}", gpu.shown(), gpu.word()));
    }
  }

  const DeviceConfig& config_;
  std::vector<VisibleGpu> visible_;
  std::vector<VisibleGpu> calmest_;
  Selection result_;
};

/// Without NVML: the words of CUDA_VISIBLE_DEVICES at these places.
std::string words_at(const std::vector<std::string>& gpus, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return fmt::format("{}", fmt::join(gpus, ","));
  std::vector<std::string> words;
  const std::string list = cuda_visible_devices;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  std::vector<std::string> chosen;
  for (const std::string& gpu : gpus) {
    size_t index = words.size();
    const bool is_index = gpu.find_first_not_of("0123456789") == std::string::npos;
    if (is_index) std::from_chars(gpu.data(), gpu.data() + gpu.size(), index);
    if (is_index && index >= words.size()) {
      throw Error(Exit::kResource, "GPU {} is not there: CUDA_VISIBLE_DEVICES={} leaves {}", gpu,
                  list, words.size());
    }
    chosen.push_back(is_index ? words[index] : gpu);
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace

Census take_census() {
  Nvml nvml;
  return {.gpus = nvml.read(), .is_known = nvml.is_there()};
}

Selection select_devices(const DeviceConfig& config, const Census& census,
                         const char* cuda_visible_devices) {
  const DeviceList list = parse_device_list(config.select);
  Selection selection;
  selection.ranks = list.ranks;
  selection.is_auto = list.kind == DeviceList::Kind::kAuto;
  if (list.kind == DeviceList::Kind::kCpu) return selection;
  if (!census.is_known || list.kind == DeviceList::Kind::kByRank) {
    selection.where = Selection::Where::kCudaSays;
    const bool is_index = list.gpus.size() == 1 && list.gpus[0].find('-') == std::string::npos;
    if (!list.gpus.empty() && !is_index) {
      selection.visible = words_at(list.gpus, cuda_visible_devices);
    }
    return selection;
  }
  Chooser chooser(config, visible_gpus(census.gpus, cuda_visible_devices));
  if (selection.is_auto) {
    chooser.take_auto();
  } else {
    chooser.take(list.gpus);
  }
  return std::move(chooser).result();
}

}  // namespace brim::device
