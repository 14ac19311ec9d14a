// May a process lock enough memory; network cards with RDMA lock their buffers.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"
#include "framework/doctor/environment/limits.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_locked_memory(const Surroundings& s) {
  std::error_code none;
  const auto cards =
      std::filesystem::directory_iterator(s.machine.path("sys/class/infiniband"), none);
  const std::optional<int64_t> limit = process_limit(s.machine, "Max locked memory");
  if (!limit) return CheckResult{Health::kPass, "no limit", ""};
  if (cards == std::filesystem::directory_iterator()) {
    return CheckResult{Health::kPass,
                       fmt::format("{}; no RDMA card needs more", format_bytes(*limit)), ""};
  }
  return CheckResult{Health::kWarn,
                     fmt::format("{}, and there is an RDMA card", format_bytes(*limit)),
                     "NCCL fails or falls back to sockets: ulimit -l unlimited, or the container's "
                     "--ulimit memlock=-1"};
}

}  // namespace brim::doctor::environment
