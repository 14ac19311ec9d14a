// What a container or a cgroup leaves of cores and memory.
#include <fmt/format.h>

#include <utility>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_container(const Surroundings& s) {
  constexpr int64_t kLittle = int64_t{1} << 30;
  const std::optional<double> quota = s.machine.core_quota();
  const std::optional<int64_t> limit = s.machine.memory_limit_bytes();
  const int64_t free = s.machine.free_memory_bytes();
  std::string found = fmt::format("{} of {} cores, {} free of {}", s.machine.usable_cores(),
                                  s.machine.allowed_cores(), format_bytes(free),
                                  format_bytes(limit.value_or(s.machine.memory_bytes())));
  if (free < kLittle) {
    return CheckResult{Health::kWarn, std::move(found),
                       "little memory is left: raise the container's limit, or end what holds it"};
  }
  if (quota && *quota < s.machine.allowed_cores()) {
    return CheckResult{
        Health::kWarn, std::move(found),
        fmt::format("the cgroup gives {:.1f} cores' time, and a process that uses it up "
                    "is stopped until the next period: raise the quota, or pin the "
                    "container to cores (--cpuset-cpus)",
                    *quota)};
  }
  return CheckResult{Health::kPass, std::move(found), ""};
}

}  // namespace brim::doctor::environment
