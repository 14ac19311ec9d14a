// Do the cores run at full clocks under load.
#include <fmt/format.h>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<Finding> check_governor(const Surroundings& s) {
  const auto governor = s.machine.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor) return Finding{Health::kPass, "clocks are not this system's to set", ""};
  if (*governor != "powersave" && *governor != "conservative") {
    return Finding{Health::kPass, *governor, ""};
  }
  return Finding{Health::kWarn, *governor,
                 "cores clock up late, and launches wait: cpupower frequency-set -g performance"};
}

}  // namespace brim::doctor::environment
