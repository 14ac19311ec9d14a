// Is NCCL there, without which GPUs cannot train together.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_nccl(const Surroundings& s) {
  if (s.gpus.empty() || !s.software.why_no_cuda.empty()) return std::nullopt;
  if (!s.software.nccl.empty()) return CheckResult{Health::kPass, s.software.nccl, ""};
  return CheckResult{s.gpus.size() > 1 ? Health::kFail : Health::kWarn, "libnccl.so.2 is not found",
                     "several GPUs need it to train together: scripts/setup --cuda installs it"};
}

}  // namespace brim::doctor::environment
