// Operators whose result the host needs before it continues, so that a GPU runs dry.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_waiting_operators(const StepProfile& profile) {
  if (!profile.is_on_gpu()) return silent();
  const CallGroup group = group_of(profile, [](const OperatorCalls& calls) {
    return (is_in_pass(calls) || calls.phase == Phase::kOptimizer) &&
           (calls.name == "aten::_local_scalar_dense" || calls.name == "aten::nonzero" ||
            calls.name == "aten::masked_select" || calls.name == "aten::equal" ||
            is_named(calls, {"aten::_unique"}));
  });
  const auto severity = reached(group.calls, kHostSyncs);
  if (!severity) return silent();
  return found(
      *severity, group.calls,
      fmt::format("the host waits for the GPU {:.1f} times a step, most in {}, by {}", group.calls,
                  group.module, group.longest.name),
      fmt::format(
          "in {}: keep the value on the device, such as at::where() in place of {}", group.module,
          group.longest.name == "aten::_local_scalar_dense" ? "item()" : group.longest.name));
}

}  // namespace brim::doctor
