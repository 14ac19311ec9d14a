// fp32 on hardware that multiplies smaller formats many times faster.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_precision(const RunFacts& facts) {
  if (facts.precision.empty() || !facts.has_matrix_units || !facts.phases) {
    return not_recorded("precision and what the device multiplies fast");
  }
  if (facts.precision != "fp32" || !*facts.has_matrix_units) return silent();
  const double share = facts.compute_share();
  const auto severity = reached(share, kComputeShareInFp32);
  if (!severity) return silent();
  return found(*severity, share / 2,
               fmt::format("{:.0f} % of step time is compute in fp32 on a device with matrix units "
                           "for bf16",
                           100 * share),
               facts.is_cuda.value_or(true) ? "precision.mode = \"bf16\" (or \"tf32\")"
                                            : "precision.mode = \"bf16\"",
               {{"precision.mode=bf16"}});
}

}  // namespace brim::doctor
