// The host waits for the device within steps, and the device then for the host.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_host_syncs(const RunFacts& facts) {
  if (facts.is_cuda && !*facts.is_cuda) return silent();
  if (!facts.host_syncs) return not_recorded("host syncs");
  const auto severity = reached(*facts.host_syncs, kHostSyncs);
  if (!severity) return silent();
  return found(*severity, 0.01 * *facts.host_syncs,
               fmt::format("{:.1f} host-device synchronisations per step", *facts.host_syncs),
               "remove .item(), .cpu() and printed tensors from the model's forward");
}

}  // namespace brim::doctor
