// Masks of dropout that take longer to draw than to apply: a CPU draws them one after the other.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_random_numbers(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [](const OperatorCalls& calls) {
    return is_in_pass(calls) && draws_random_numbers(calls);
  });
  const auto severity = reached(group.share, kRandomNumbersShare);
  if (!severity) return silent();
  return found(*severity, group.share,
               fmt::format("drawing random numbers takes {:.0f} % of the step, most in {}: {}",
                           100 * group.share, group.module, with_shapes(group.longest)),
               "model.dropout = 0");
}

}  // namespace brim::doctor
