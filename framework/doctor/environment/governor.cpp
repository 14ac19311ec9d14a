// Do the cores run at full clocks under load.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_governor(const Surroundings& s) {
  const auto governor = s.machine.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor) return CheckResult{Health::kPass, "clocks are not this system's to set", ""};
  if (*governor != "powersave" && *governor != "conservative") {
    return CheckResult{Health::kPass, *governor, ""};
  }
  return CheckResult{
      Health::kWarn, *governor,
      "cores clock up late, and launches wait: cpupower frequency-set -g performance"};
}

}  // namespace brim::doctor::environment
