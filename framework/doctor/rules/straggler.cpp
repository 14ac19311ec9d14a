// One rank needs longer for its part than the others, which wait for it.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

/// Shares that follow a rank's speed are no help where it has more samples than the others, and a
/// deterministic run refuses them.
RuleResult straggler(Severity severity, std::string message, const RunFacts& facts) {
  const double lost = 1 - 1 / *facts.slowest_rank_ratio;
  if (facts.stages && *facts.stages > 1) {
    return found(
        severity, lost, std::move(message),
        facts.has_given_cut
            ? "a cut whose stages have as much work as each other: leave out distributed.cut, or "
              "see what else runs on that device"
            : "see what else runs on that device: the cut is already the most even one that the "
              "model and the memory allow. Fewer stages divide more evenly");
  }
  if (facts.balance == "throughput" || facts.is_deterministic) {
    return found(severity, lost, std::move(message),
                 "exclude that device (device.select), or stop what else runs on it");
  }
  if (facts.largest_share_ratio && reached(*facts.largest_share_ratio, kLargestShare)) {
    return found(severity, lost, std::move(message),
                 "even shares first: a batch.global that the number of ranks divides");
  }
  return found(severity, lost, std::move(message), "distributed.balance = \"throughput\"",
               {{"distributed.balance=throughput"}});
}

}  // namespace

RuleResult check_straggler(const RunFacts& facts) {
  if (facts.ranks && *facts.ranks < 2) return silent();
  if (!facts.slowest_rank_ratio) return not_recorded("the ranks' own times");
  const auto severity = reached(*facts.slowest_rank_ratio, kSlowestRank);
  if (!severity) return silent();
  std::string who =
      facts.slowest_rank ? fmt::format("rank {}", *facts.slowest_rank) : std::string("one rank");
  if (!facts.slowest_place.empty()) who += fmt::format(" ({})", facts.slowest_place);
  return straggler(
      *severity,
      fmt::format(
          "straggler: {} takes {:.2f} times the other ranks' time, and all ranks wait for it", who,
          *facts.slowest_rank_ratio),
      facts);
}

}  // namespace brim::doctor
