#include "framework/device/choice.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "framework/base/error.h"
#include "framework/device/cuda_loader.h"

namespace brim::device {
namespace {

/// The index in "3" or "cuda:3".
std::optional<int> cuda_index(std::string_view select) {
  if (select.starts_with("cuda:")) select.remove_prefix(5);
  int index = 0;
  const auto [end, code] = std::from_chars(select.data(), select.data() + select.size(), index);
  const bool is_number = code == std::errc() && end == select.data() + select.size();
  return is_number && index >= 0 && index < 128 ? std::optional(index) : std::nullopt;
}

}  // namespace

void DeviceConfig::fields(recipe::Fields& f) {
  f.value("select", select, "\"auto\", \"cpu\", or a GPU as \"cuda:0\" or \"0\"");
  f.value("memory_fraction", memory_fraction,
          "share of the device's memory that the job may take; 1: what is free at its start",
          {.low = 0, .high = 1, .low_open = true});
  f.value("memory_gib", memory_gib, "GiB that the job may take; 0: as memory_fraction says",
          recipe::at_least(0));
}

c10::Device choose_device(const std::string& select, int64_t local_rank, int64_t local_world) {
  if (select == "cpu") return c10::kCPU;
  if (select == "auto" && cuda().backend == nullptr) return c10::kCPU;
  const bool is_by_rank = select == "auto" || select == "cuda";
  const std::optional<int> index = is_by_rank ? static_cast<int>(local_rank) : cuda_index(select);
  if (!index) {
    throw Error(
        Exit::kRecipe,
        "device '{}': expected \"auto\", \"cpu\", or a GPU's index as in \"0\" or \"cuda:0\"",
        select);
  }
  if (!is_by_rank && local_world > 1) {
    throw Error(Exit::kRecipe,
                "device '{}': {} ranks run on this machine, and each needs a GPU of its own: leave "
                "device.select to \"auto\", and choose GPUs by CUDA_VISIBLE_DEVICES",
                select, local_world);
  }
  const CudaLoad& load = cuda();
  if (load.backend == nullptr) {
    throw Error(Exit::kResource,
                "device '{}' is not there: {}. Use --devices cpu, or leave the choice to \"auto\"",
                select, load.why_not);
  }
  const int count = load.backend->device_count();
  if (is_by_rank && *index >= count) {
    throw Error(
        Exit::kResource,
        "{} ranks run on this machine, and this process sees {} GPU{} (CUDA_VISIBLE_DEVICES "
        "decides which): start as many ranks as there are GPUs",
        local_world, count, count == 1 ? "" : "s");
  }
  if (*index >= count) {
    throw Error(
        Exit::kResource,
        "device '{}' is not there: this process sees {} GPU{} (CUDA_VISIBLE_DEVICES decides "
        "which). Choose one from 0 to {}",
        select, count, count == 1 ? "" : "s", count - 1);
  }
  load.backend->set_device(*index);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(*index)};
}

}  // namespace brim::device
