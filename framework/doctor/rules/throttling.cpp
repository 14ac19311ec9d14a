// The device lowers its clocks for heat or power.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_throttling(const RunFacts& facts) {
  if (facts.is_cuda && !*facts.is_cuda) return silent();
  if (!facts.slowed_share) return not_recorded("clocks and why they are low");
  const auto severity = reached(*facts.slowed_share, kSlowedShare);
  if (!severity) return silent();
  return found(
      *severity, *facts.slowed_share / 2,
      fmt::format("thermal or power throttling {:.0f} % of the time", 100 * *facts.slowed_share),
      "cooling and the power limit (trainer devices), or another device.select");
}

}  // namespace brim::doctor
