// Do other processes want the cores too.
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_load(const Surroundings& s) {
  const double load = std::strtod(s.machine.line("proc/loadavg").value_or("0").c_str(), nullptr);
  const int cores = s.machine.usable_cores();
  std::string found = fmt::format(
      "{:.1f} wanted on average over a minute, {} usable; waiting OpenMP threads {}", load, cores,
      s.wait_policy ? "follow " + *s.wait_policy
                    : std::string("spin, on shared cores only while steps are faster so"));
  if (load <= cores + 0.5) return CheckResult{Health::kPass, std::move(found), ""};
  return CheckResult{Health::kWarn, std::move(found),
                     "loader and launches wait for a core: end other work, or keep ranks apart by "
                     "trainrun --bind=cores"};
}

}  // namespace brim::doctor::environment
