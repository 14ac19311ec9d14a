// Tensors that are copied into another memory order: contiguous(), channels_last, transposed views.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_layout_copies(const StepProfile& profile) {
  const CallGroup group = group_of(profile, [](const OperatorCalls& calls) {
    return is_in_pass(calls) && calls.name == "aten::copy_" && calls.inputs.size() >= 2 &&
           calls.inputs[0].dtype == calls.inputs[1].dtype;
  });
  const auto severity = reached(group.share, kLayoutCopiesShare);
  if (!severity) return silent();
  const bool is_image = group.longest.inputs[0].sizes.size() == 4;
  return found(
      *severity, group.share,
      fmt::format("{:.0f} copies into another memory order a step take {:.1f} ms, {:.0f} % of it, "
                  "most in {}: {}",
                  group.calls, 1e3 * group.seconds, 100 * group.share, group.module,
                  with_shapes(group.longest)),
      is_image
          ? fmt::format("precision.channels_last turned round, or in {}: no contiguous() or "
                        "permute() between layers",
                        group.module)
          : fmt::format("in {}: no contiguous(), permute() or cat() between layers", group.module));
}

}  // namespace brim::doctor
