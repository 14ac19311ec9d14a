#include "framework/device/choice.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "framework/base/error.h"
#include "framework/device/cuda_loader.h"

namespace brim::device {
namespace {

/// The index in "3", "cuda" or "cuda:3".
std::optional<int> cuda_index(std::string_view select) {
  if (select == "cuda") return 0;
  if (select.starts_with("cuda:")) select.remove_prefix(5);
  int index = 0;
  const auto [end, code] = std::from_chars(select.data(), select.data() + select.size(), index);
  const bool is_number = code == std::errc() && end == select.data() + select.size();
  return is_number && index >= 0 && index < 128 ? std::optional(index) : std::nullopt;
}

}  // namespace

void DeviceConfig::fields(recipe::Fields& f) {
  f.value("select", select, "\"auto\", \"cpu\", or a GPU as \"cuda:0\" or \"0\"");
}

c10::Device choose_device(const std::string& select) {
  if (select == "cpu") return c10::kCPU;
  if (select == "auto" && cuda().backend == nullptr) return c10::kCPU;
  const std::optional<int> index = select == "auto" ? 0 : cuda_index(select);
  if (!index) {
    throw Error(
        Exit::kRecipe,
        "device '{}': expected \"auto\", \"cpu\", or a GPU's index as in \"0\" or \"cuda:0\"",
        select);
  }
  const CudaLoad& load = cuda();
  if (load.backend == nullptr) {
    throw Error(Exit::kResource,
                "device '{}' is not there: {}. Use --devices cpu, or leave the choice to \"auto\"",
                select, load.why_not);
  }
  const int count = load.backend->device_count();
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
