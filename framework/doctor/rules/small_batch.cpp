// Few samples a step on a CPU: much of such a step does not depend on their number.
#include <algorithm>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

constexpr int64_t kLargerBatch = 64;

/// Adam and its kin follow the root of the batch, SGD the batch itself (see train::BatchRule).
std::string rule_of(const RunFacts& facts) {
  return facts.optimizer.starts_with("adam") || facts.optimizer == "lamb" ? "sqrt" : "linear";
}

}  // namespace

RuleResult check_small_batch(const RunFacts& facts) {
  if (facts.is_cuda && *facts.is_cuda) return silent();  // launch_bound speaks of those
  if (!facts.step_s || !facts.micro_batch || !facts.global_batch) {
    return not_recorded("the batch and its steps");
  }
  const int64_t ranks = std::max<int64_t>(1, facts.ranks.value_or(1));
  if (facts.step_s->p50 > kLaunchBoundStepS) return silent();
  const int64_t share = (*facts.global_batch + ranks - 1) / ranks;
  const int64_t pass = std::min(*facts.micro_batch, share);
  const auto severity = fallen_to(static_cast<double>(pass), kSmallBatch);
  if (!severity) return silent();
  std::string message =
      fmt::format("passes of {} in steps of {:.1f} ms: much of them does not depend on the batch",
                  format_plural(pass, "sample"), 1e3 * facts.step_s->p50);
  if (pass < share) {
    return found(*severity, 0.1, std::move(message), "batch.micro = 0", {{"batch.micro=0"}});
  }
  Settings larger = {fmt::format("batch.global={}", kLargerBatch * ranks), "batch.micro=0"};
  if (facts.batch_rule == "none") {
    larger.push_back("optimizer.batch_rule=" + rule_of(facts));
    larger.push_back(fmt::format("optimizer.base_batch={}", *facts.global_batch));
  }
  return found(*severity, 0.1, std::move(message),
               fmt::format("a larger batch.global, such as {}, with optimizer.batch_rule for its "
                           "learning rate",
                           kLargerBatch * ranks),
               {larger});
}

}  // namespace brim::doctor
