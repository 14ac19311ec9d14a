// Depthwise and grouped convolutions, which take much longer than their operations and bytes do.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"
#include "framework/experiment/profile/roofline.h"

namespace brim::doctor {
namespace {

/// [N, C, …] by [O, C / groups, …]; backward, behind the gradient [N, O, …].
bool is_grouped(const OperatorCalls& calls) {
  if (calls.flops <= 0 || !is_named(calls, {"conv"})) return false;
  const size_t first = calls.phase == Phase::kBackward ? 1 : 0;
  if (calls.inputs.size() < first + 2) return false;
  const auto &input = calls.inputs[first].sizes, &weight = calls.inputs[first + 1].sizes;
  return input.size() > 2 && weight.size() > 2 && input[1] > weight[1];
}

}  // namespace

RuleResult check_grouped_convolutions(const StepProfile& profile) {
  const CallGroup group = group_of(profile, is_grouped);
  experiment::Work work;
  for (const OperatorCalls& calls : profile.operators) {
    if (is_grouped(calls)) work += experiment::work_of(calls, profile.peaks);
  }
  const double lost = group.share * std::max(0.0, 1 - work.efficiency());
  const auto severity = reached(lost, kLostInGroupsShare);
  if (!severity) return silent();
  return found(
      *severity, lost,
      fmt::format("grouped convolutions take {:.0f} % of the step at {:.0f} % of their roofline, "
                  "most in {}: {}",
                  100 * group.share, 100 * work.efficiency(), group.module,
                  with_shapes(group.longest)),
      fmt::format("fewer groups in {}, or a model without them", group.module));
}

}  // namespace brim::doctor
