// How many files a process may have open; shards, sockets and checkpoints count.
#include <fmt/format.h>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"
#include "framework/doctor/environment/limits.h"

namespace brim::doctor::environment {

std::optional<Finding> check_open_files(const Surroundings& s) {
  constexpr int64_t kEnough = 4096;
  const std::optional<int64_t> limit = process_limit(s.machine, "Max open files");
  if (!limit) return Finding{Health::kPass, "no limit", ""};
  if (*limit >= kEnough) return Finding{Health::kPass, format_count(*limit), ""};
  return Finding{Health::kWarn, format_count(*limit),
                 "many shards and ranks need more: ulimit -n 65536"};
}

}  // namespace brim::doctor::environment
