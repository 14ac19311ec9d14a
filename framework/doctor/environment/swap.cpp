// Has memory been swapped out.
#include <fmt/format.h>

#include <utility>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_swap(const Surroundings& s) {
  const int64_t total = s.machine.meminfo("SwapTotal").value_or(0);
  const int64_t used = total - s.machine.meminfo("SwapFree").value_or(total);
  if (total == 0) return CheckResult{Health::kPass, "none", ""};
  std::string found = fmt::format("{} used of {}", format_bytes(used), format_bytes(total));
  if (used * 20 < s.machine.memory_bytes()) return CheckResult{Health::kPass, std::move(found), ""};
  return CheckResult{
      Health::kWarn, std::move(found),
      "a step that touches swapped memory waits for the disk: end what fills memory, or "
      "lower data.cache_gib and batch.micro"};
}

}  // namespace brim::doctor::environment
