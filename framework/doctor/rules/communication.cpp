// Ranks wait for each other's gradients, beyond what backward hides.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_communication(const RunFacts& facts) {
  if (!facts.phases || !facts.ranks) return not_recorded("the phases of a step");
  if (*facts.ranks < 2) return silent();
  const double share = facts.share(Phase::kCommunication);
  const auto severity = reached(share, kCommunicationShare);
  if (!severity) return silent();
  return found(*severity, share,
               fmt::format("exposed communication: {:.0f} % of step time", 100 * share),
               facts.compress == "none" || facts.compress.empty()
                   ? "distributed.compress = \"bf16\", or a larger batch.global"
                   : "a larger batch.global, or another distributed.bucket_mib");
}

}  // namespace brim::doctor
