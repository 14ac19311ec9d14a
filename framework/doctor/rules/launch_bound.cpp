// Short steps on a GPU that is often idle although data is there: the host cannot give it work fast
// enough.
#include <algorithm>
#include <string>

#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

struct LaunchAdvice {
  std::string words;
  std::vector<Settings> proposals;
};

LaunchAdvice what_to_change(const RunFacts& facts) {
  const bool can_record = !facts.has_cuda_graph.value_or(false) &&
                          (facts.ranks.value_or(1) == 1 || facts.has_passes_alone);
  const Settings graph = {"train.cuda_graph=true"};
  if (facts.peak_bytes && facts.cap_bytes && *facts.peak_bytes >= kFull * *facts.cap_bytes) {
    if (can_record) return {"train.cuda_graph = true", {graph}};
    return {"precision.mode = \"bf16\"", {{"precision.mode=bf16"}}};
  }
  LaunchAdvice advice{"a larger batch.global", {}};
  if (facts.micro_batch && facts.global_batch && *facts.micro_batch < *facts.global_batch) {
    const int64_t twice = std::min(2 * *facts.micro_batch, *facts.global_batch);
    advice = {fmt::format("batch.micro = {}", twice), {{fmt::format("batch.micro={}", twice)}}};
  }
  if (!can_record) return advice;
  advice.proposals.insert(advice.proposals.begin(), graph);
  return {"train.cuda_graph = true, or " + advice.words, std::move(advice.proposals)};
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
  LaunchAdvice advice = what_to_change(facts);
  return found(
      *severity, 1 - facts.busy_percent->mean / 100,
      fmt::format(
          "launch-bound: the GPU is busy {:.0f} % of steps of {:.1f} ms and does not wait for "
          "data",
          facts.busy_percent->mean, 1e3 * facts.step_s->p50),
      std::move(advice.words), std::move(advice.proposals));
}

}  // namespace brim::doctor
