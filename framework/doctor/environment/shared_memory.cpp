// Is /dev/shm large enough for NCCL between the GPUs of a machine.
#include <fmt/format.h>

#include <utility>

#include "framework/base/units.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_shared_memory(const Surroundings& s) {
  constexpr int64_t kEnough = int64_t{1} << 30;
  if (!s.shared_memory) {
    return CheckResult{Health::kWarn, "there is no /dev/shm", "mount a tmpfs there"};
  }
  std::string found = fmt::format("{} free of {}", format_bytes(s.shared_memory->free_bytes),
                                  format_bytes(s.shared_memory->total_bytes));
  if (s.shared_memory->free_bytes >= kEnough || s.gpus.size() < 2) {
    return CheckResult{Health::kPass, std::move(found), ""};
  }
  return CheckResult{
      Health::kWarn, std::move(found),
      "NCCL's buffers between GPUs are there: the container's --shm-size=8g, or --ipc=host"};
}

}  // namespace brim::doctor::environment
