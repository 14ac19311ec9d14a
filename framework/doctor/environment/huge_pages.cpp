// May memory be in huge pages, which the CPU allocator asks for.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_huge_pages(const Surroundings& s) {
  const auto modes = s.machine.line("sys/kernel/mm/transparent_hugepage/enabled");
  if (!modes) return CheckResult{Health::kPass, "unknown", ""};
  if (modes->find("[never]") == std::string::npos) return CheckResult{Health::kPass, *modes, ""};
  return CheckResult{Health::kWarn, *modes,
                     "training on the CPU is slower without: echo madvise > "
                     "/sys/kernel/mm/transparent_hugepage/enabled"};
}

}  // namespace brim::doctor::environment
