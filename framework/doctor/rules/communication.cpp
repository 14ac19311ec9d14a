// Ranks wait for each other's gradients, beyond what backward hides.
#include <algorithm>

#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

/// Of a step's time, what rank 0 waits for a slower one: that is no communication.
double share_of_waits(const RunFacts& facts) {
  const double own =
      facts.share(Phase::kDataWait) + facts.share(Phase::kForward) + facts.share(Phase::kBackward);
  return own * std::max(0.0, facts.slowest_to_rank_0.value_or(1) - 1);
}

}  // namespace

RuleResult check_communication(const RunFacts& facts) {
  if (!facts.phases || !facts.ranks) return not_recorded("the phases of a step");
  if (*facts.ranks < 2) return silent();
  const double share = std::max(0.0, facts.share(Phase::kCommunication) - share_of_waits(facts));
  const auto severity = reached(share, kCommunicationShare);
  if (!severity) return silent();
  return found(*severity, share,
               fmt::format("exposed communication: {:.0f} % of step time", 100 * share),
               facts.compress == "none" || facts.compress.empty()
                   ? "distributed.compress = \"bf16\", or a larger batch.global"
                   : "a larger batch.global, or another distributed.bucket_mib",
               facts.compress == "none" ? std::vector<Settings>{{"distributed.compress=bf16"}}
                                        : std::vector<Settings>{});
}

}  // namespace brim::doctor
