// Tensors that are cast from one format to another on their way through the model.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_conversions(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [](const OperatorCalls& calls) {
    return is_in_pass(calls) && calls.name == "aten::copy_" && calls.inputs.size() >= 2 &&
           calls.inputs[0].dtype != calls.inputs[1].dtype;
  });
  const auto severity = reached(group.share, kConversionsShare);
  if (!severity) return silent();
  return found(
      *severity, group.share,
      fmt::format("{:.0f} casts between formats a step take {:.1f} ms, {:.0f} % of it, most in {}: "
                  "{} to {}",
                  group.calls, 1e3 * group.seconds, 100 * group.share, group.module,
                  group.longest.inputs[1].dtype, group.longest.inputs[0].dtype),
      profile.fused == "false"
          ? "precision.fused = \"auto\""
          : fmt::format("in {}: no .to() between layers, or precision.mode = \"fp32\" where "
                        "casting costs more than it saves",
                        group.module));
}

}  // namespace brim::doctor
