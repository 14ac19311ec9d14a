// One rank gets more samples than the others although they are equals.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

std::vector<Settings> divisible_batch(const RunFacts& facts) {
  if (!facts.global_batch || !facts.ranks || *facts.global_batch % *facts.ranks == 0) return {};
  const int64_t rounds = *facts.global_batch / *facts.ranks + 1;
  return {{fmt::format("batch.global={}", rounds * *facts.ranks)}};
}

}  // namespace

RuleResult check_uneven_shards(const RunFacts& facts) {
  if (facts.ranks && *facts.ranks < 2) return silent();
  if (!facts.largest_share_ratio) return not_recorded("the ranks' samples");
  if (facts.balance == "throughput") return silent();  // it is meant to be so
  const auto severity = reached(*facts.largest_share_ratio, kLargestShare);
  if (!severity) return silent();
  return found(
      *severity, 1 - 1 / *facts.largest_share_ratio,
      fmt::format("load imbalance: the largest rank has {:.2f} times the mean number of samples",
                  *facts.largest_share_ratio),
      facts.balance == "cost"
          ? "a batch.global that the number of ranks divides"
          : "a batch.global that the number of ranks divides, or distributed.balance = \"cost\"",
      divisible_batch(facts));
}

}  // namespace brim::doctor
