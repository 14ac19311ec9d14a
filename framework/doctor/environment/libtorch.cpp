// Is LibTorch the version that Brim is written and tested for.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_libtorch(const Surroundings& s) {
  constexpr const char* kTested = "2.11";
  if (s.software.libtorch.starts_with(kTested))
    return CheckResult{Health::kPass, s.software.libtorch, ""};
  return CheckResult{Health::kWarn, s.software.libtorch,
                     fmt::format("Brim is tested with {}: scripts/setup installs it", kTested)};
}

}  // namespace brim::doctor::environment
