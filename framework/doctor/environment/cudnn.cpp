// Is cuDNN there, without which convolutions do not run on a GPU.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_cudnn(const Surroundings& s) {
  if (s.gpus.empty() || !s.software.why_no_cuda.empty()) return std::nullopt;
  if (!s.software.cudnn.empty()) return CheckResult{Health::kPass, s.software.cudnn, ""};
  return CheckResult{Health::kWarn, "libcudnn.so.9 is not found",
                     "convolutions need it: scripts/setup --cuda installs it"};
}

}  // namespace brim::doctor::environment
