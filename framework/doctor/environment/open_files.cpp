// How many files a process may have open; shards, sockets and checkpoints count.
#include <fmt/format.h>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"
#include "framework/doctor/environment/limits.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_open_files(const Surroundings& s) {
  constexpr int64_t kEnough = 4096;
  const std::optional<int64_t> limit = process_limit(s.machine, "Max open files");
  if (!limit) return CheckResult{Health::kPass, "no limit", ""};
  if (*limit >= kEnough) return CheckResult{Health::kPass, format_count(*limit), ""};
  return CheckResult{Health::kWarn, format_count(*limit),
                     "many shards and ranks need more: ulimit -n 65536"};
}

}  // namespace brim::doctor::environment
