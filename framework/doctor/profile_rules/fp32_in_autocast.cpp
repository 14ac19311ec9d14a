// Operators that compute in fp32 though the recipe asks for a smaller format: reductions that
// autocast keeps so, and what a model has cast itself.
#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

RuleResult check_fp32_in_autocast(const StepProfile& profile) {
  // Where the device has no products in the smaller format, they are widened on purpose.
  const CallGroup low_products = group_of(profile, [](const OperatorCalls& calls) {
    return calls.flops > 0 && is_low(calls.product_format());
  });
  const CallGroup group = group_of(profile, [&](const OperatorCalls& calls) {
    const bool is_widened = calls.flops > 0 && low_products.calls == 0;
    return is_in_pass(calls) && calls.module != "loss" && calls.bytes > 0 && !is_widened &&
           !draws_random_numbers(calls) && calls.name != "aten::copy_" &&
           is_wide_in_autocast(profile, calls);
  });
  const auto severity = reached(group.share, kFp32Share);
  if (!severity) return silent();
  return found(
      *severity, group.share,
      fmt::format("operators in fp32 under {} take {:.0f} % of the step, most in {}: {}",
                  profile.precision, 100 * group.share, group.module, with_shapes(group.longest)),
      fmt::format("in {}: let {} take {}, as after x.to({})", group.module, group.longest.name,
                  profile.precision, profile.precision == "bf16" ? "at::kBFloat16" : "at::kHalf"));
}

}  // namespace brim::doctor
