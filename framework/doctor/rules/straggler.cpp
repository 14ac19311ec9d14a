// One rank needs longer for its part than the others, which wait for it.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

/// Shares that follow a rank's speed are no help where it has more samples than the others, and a
/// deterministic run refuses them.
std::string straggler_advice(const RunFacts& facts) {
  if (facts.balance == "throughput" || facts.is_deterministic) {
    return "exclude that device (device.select), or stop what else runs on it";
  }
  if (facts.largest_share_ratio && reached(*facts.largest_share_ratio, kLargestShare)) {
    return "even shares first: a batch.global that the number of ranks divides";
  }
  return "distributed.balance = \"throughput\"";
}

}  // namespace

RuleResult check_straggler(const RunFacts& facts) {
  if (facts.ranks && *facts.ranks < 2) return silent();
  if (!facts.slowest_rank_ratio) return not_recorded("the ranks' own times");
  const auto severity = reached(*facts.slowest_rank_ratio, kSlowestRank);
  if (!severity) return silent();
  const std::string who =
      facts.slowest_rank ? fmt::format("rank {}", *facts.slowest_rank) : std::string("one rank");
  return found(
      *severity, 1 - 1 / *facts.slowest_rank_ratio,
      fmt::format(
          "straggler: {} takes {:.2f} times the other ranks' time, and all ranks wait for it", who,
          *facts.slowest_rank_ratio),
      straggler_advice(facts));
}

}  // namespace brim::doctor
