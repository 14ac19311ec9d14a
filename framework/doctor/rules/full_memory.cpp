// Memory is full but the device is often idle: a larger batch is no help.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

/// The line that concerns the largest wait.
std::string advice(const RunFacts& facts) {
  const double wait = facts.share(Phase::kDataWait);
  const double communication = facts.share(Phase::kCommunication);
  if (wait >= kDataWaitShare.hint && wait >= communication) {
    return "data.workers or data.cache: the run is data-bound";
  }
  if (communication >= kCommunicationShare.hint) return "distributed.compress = \"bf16\"";
  // Where launches bound the steps, smaller ones are slower.
  if (facts.step_s && facts.step_s->p50 <= kLaunchBoundStepS) {
    return "precision.mode = \"bf16\" saves memory and time";
  }
  return "precision.mode = \"bf16\" saves memory and time; a smaller batch.micro loses nothing";
}

}  // namespace

RuleResult check_full_memory(const RunFacts& facts) {
  if (facts.is_cuda && !*facts.is_cuda) return silent();
  if (!facts.busy_percent || !facts.peak_bytes || !facts.cap_bytes) {
    return not_recorded("memory and utilisation");
  }
  const double fill = *facts.peak_bytes / *facts.cap_bytes;
  if (fill < kFull) return silent();
  const auto severity = fallen_to(facts.busy_percent->mean, kIdleThoughFull);
  if (!severity) return silent();
  return found(
      *severity, 1 - facts.busy_percent->mean / 100,
      fmt::format("memory is {:.0f} % full but the device is busy only {:.0f} % of the time",
                  100 * fill, facts.busy_percent->mean),
      advice(facts));
}

}  // namespace brim::doctor
