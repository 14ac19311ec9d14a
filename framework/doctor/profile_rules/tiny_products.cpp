// Matrix products that are done sooner than they are called.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"
#include "framework/experiment/profile/roofline.h"

namespace brim::doctor {

RuleResult check_tiny_products(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [&](const OperatorCalls& calls) {
    return calls.flops > 0 &&
           experiment::work_of(calls, profile.peaks).bound() == experiment::Bound::kLaunch;
  });
  const auto severity = reached(group.share, kTinyProductsShare);
  if (!severity) return silent();
  const bool is_split = profile.micro_batch < profile.global_batch;
  return found(
      *severity, group.share,
      fmt::format("{:.0f} matrix products a step cost more to call than to compute and take "
                  "{:.0f} % of it, such as {} in {}",
                  group.calls, 100 * group.share, with_shapes(group.longest), group.module),
      is_split ? fmt::format("batch.micro = {}", profile.global_batch)
               : fmt::format("batch.global = {} (and optimizer.learning_rate with it), or fewer "
                             "and wider layers",
                             4 * profile.global_batch));
}

}  // namespace brim::doctor
