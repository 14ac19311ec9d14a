// What CUDA_VISIBLE_DEVICES leaves of the GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/device/gpus/device_list.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_visible_devices(const Surroundings& s) {
  if (s.gpus.empty()) return std::nullopt;
  const char* list = s.cuda_visible_devices ? s.cuda_visible_devices->c_str() : nullptr;
  const size_t left = device::visible_gpus(s.gpus, list).size();
  if (list == nullptr) return CheckResult{Health::kPass, fmt::format("all {}", left), ""};
  std::string found =
      fmt::format("CUDA_VISIBLE_DEVICES={} leaves {} of {}", list, left, s.gpus.size());
  const std::string_view text = list;
  const bool is_meant = text.empty() || text.starts_with("-1");
  const auto named = static_cast<size_t>(std::ranges::count(text, ',')) + 1;
  if (is_meant || left == named) return CheckResult{Health::kPass, std::move(found), ""};
  return CheckResult{Health::kWarn, std::move(found),
                     "CUDA stops at the first entry that names no GPU, and takes none where one is "
                     "there twice: correct the list (trainer devices shows indexes and UUIDs)"};
}

}  // namespace brim::doctor::environment
