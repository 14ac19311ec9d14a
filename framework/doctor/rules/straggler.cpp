// One rank needs longer for its part than the others, which wait for it.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

Outcome check_straggler(const RunFacts& facts) {
  if (facts.ranks && *facts.ranks < 2) return silent();
  if (!facts.slowest_rank_ratio) return not_recorded("the ranks' own times");
  const auto severity = reached(*facts.slowest_rank_ratio, kSlowestRank);
  if (!severity) return silent();
  const std::string who =
      facts.slowest_rank ? fmt::format("rank {}", *facts.slowest_rank) : std::string("one rank");
  return found(
      *severity, 1 - 1 / *facts.slowest_rank_ratio,
      fmt::format("{} needs {:.2f} times as long as the median of the ranks, and all wait for it",
                  who, *facts.slowest_rank_ratio),
      facts.balance == "throughput"
          ? "leave that device out (device.select), or look for what else runs on it"
          : "distributed.balance = \"throughput\"");
}

}  // namespace brim::doctor
