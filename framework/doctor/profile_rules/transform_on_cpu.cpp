// Batches that the CPU normalises, mixes and erases between the steps' own work.
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_transform_on_cpu(const StepProfile& profile) {
  if (profile.is_on_gpu() || profile.wall_s <= 0) return silent();
  const double share = profile.phase_s[static_cast<size_t>(Phase::kTransform)] / profile.wall_s;
  const auto severity = reached(share, kTransformShare);
  if (!severity) return silent();
  return found(
      *severity, share,
      fmt::format("transforming whole batches on the CPU takes {:.0f} % of the step", 100 * share),
      "data.augment.mixup = 0, cutmix = 0 and erase = 0 where they are set, or a GPU, "
      "which transforms in passing");
}

}  // namespace brim::doctor
