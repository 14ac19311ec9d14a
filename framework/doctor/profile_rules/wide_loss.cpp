// A loss in fp32 over many classes: logits are the largest tensor of a small language model, and
// cast, kept and read once more for it.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_wide_loss(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [&](const OperatorCalls& calls) {
    return calls.module == "loss" && !calls.inputs.empty() && calls.inputs[0].sizes.size() >= 2 &&
           (is_wide_in_autocast(profile, calls) || calls.name == "aten::copy_") &&
           is_low(profile.precision);
  });
  const auto severity = reached(group.share, kWideLossShare);
  if (!severity) return silent();
  return found(*severity, group.share,
               fmt::format("the loss in fp32 over {} classes takes {:.0f} % of the step: {}",
                           group.longest.inputs[0].sizes.back(), 100 * group.share,
                           with_shapes(group.longest)),
               profile.fused == "false"
                   ? "precision.fused = \"auto\", whose cross-entropy reads logits as they are"
                   : fmt::format("nn::fused_cross_entropy() of logits in {}, without a cast",
                                 profile.precision));
}

}  // namespace brim::doctor
