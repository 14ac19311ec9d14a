// Is NCCL there, without which GPUs cannot train together.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<Finding> check_nccl(const Surroundings& s) {
  if (s.gpus.empty() || !s.software.why_no_cuda.empty()) return std::nullopt;
  if (!s.software.nccl.empty()) return Finding{Health::kPass, s.software.nccl, ""};
  return Finding{s.gpus.size() > 1 ? Health::kFail : Health::kWarn, "libnccl.so.2 is not found",
                 "several GPUs need it to train together: scripts/setup --cuda installs it"};
}

}  // namespace brim::doctor::environment
