// Short steps on a GPU that is often idle although data is there: the host cannot give it work fast
// enough.
#include <algorithm>
#include <string>

#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

std::string what_to_change(const RunFacts& facts) {
  const bool can_record = !facts.has_cuda_graph.value_or(false) && facts.ranks.value_or(1) == 1;
  if (facts.peak_bytes && facts.cap_bytes && *facts.peak_bytes >= kFull * *facts.cap_bytes) {
    return can_record ? "train.cuda_graph = true" : "precision.mode = \"bf16\"";
  }
  const std::string larger =
      facts.micro_batch && facts.global_batch && *facts.micro_batch < *facts.global_batch
          ? fmt::format("batch.micro = {}", std::min(2 * *facts.micro_batch, *facts.global_batch))
          : "a larger batch.global";
  return can_record ? "train.cuda_graph = true, or " + larger : larger;
}

}  // namespace

RuleResult check_launch_bound(const RunFacts& facts) {
  if (facts.is_cuda && !*facts.is_cuda) return silent();
  if (!facts.busy_percent || !facts.step_s || !facts.phases) return not_recorded("utilisation");
  if (facts.step_s->p50 > kLaunchBoundStepS) return silent();
  if (facts.share(Phase::kDataWait) > kLaunchBoundWait ||
      facts.share(Phase::kCommunication) > kCommunicationShare.hint) {
    return silent();
  }
  const auto severity = fallen_to(facts.busy_percent->mean, kLaunchBoundBusy);
  if (!severity) return silent();
  return found(
      *severity, 1 - facts.busy_percent->mean / 100,
      fmt::format(
          "launch-bound: the GPU is busy {:.0f} % of steps of {:.1f} ms and does not wait for "
          "data",
          facts.busy_percent->mean, 1e3 * facts.step_s->p50),
      what_to_change(facts));
}

}  // namespace brim::doctor
