// Short steps on a GPU that is often idle although data is there: the host cannot give it work fast
// enough.
#include <algorithm>

#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

Outcome check_launch_bound(const RunFacts& facts) {
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
      fmt::format("the GPU is busy {:.0f} % of steps of {:.1f} ms and waits for no data: the "
                  "host launches work too slowly",
                  facts.busy_percent->mean, 1e3 * facts.step_s->p50),
      facts.micro_batch && facts.global_batch && *facts.micro_batch < *facts.global_batch
          ? fmt::format("batch.micro = {}", std::min(2 * *facts.micro_batch, *facts.global_batch))
          : "a larger batch.global");
}

}  // namespace brim::doctor
