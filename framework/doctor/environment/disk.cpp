// Is there room for checkpoints where runs are written.
#include <fmt/format.h>

#include <utility>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_disk(const Surroundings& s) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  if (!s.disk) {
    return CheckResult{Health::kWarn, fmt::format("{} cannot be looked at", s.folder.string()),
                       "choose another folder by --output"};
  }
  std::string found = fmt::format("{} free of {} in {}", format_bytes(s.disk->free_bytes),
                                  format_bytes(s.disk->total_bytes), s.folder.string());
  if (s.disk->free_bytes >= 10 * kGiB) return CheckResult{Health::kPass, std::move(found), ""};
  return CheckResult{
      s.disk->free_bytes < kGiB ? Health::kFail : Health::kWarn, std::move(found),
      "a checkpoint holds weights and optimizer state, about three times the weights: "
      "make room, or write elsewhere by --output"};
}

}  // namespace brim::doctor::environment
