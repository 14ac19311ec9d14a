// Convolutions on NCHW images, which the device's fast kernels have to turn round each time.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_layout(const RunFacts& facts) {
  if (!facts.has_convolutions || !facts.is_channels_last || !facts.phases) {
    return not_recorded("the memory order of images");
  }
  if (!*facts.has_convolutions || *facts.is_channels_last) return silent();
  const double share = facts.compute_share();
  const auto severity = reached(share, kComputeShareOfLayout);
  if (!severity) return silent();
  return found(*severity, share / 4,
               fmt::format("{:.0f} % of step time is compute with convolutions on NCHW tensors",
                           100 * share),
               "precision.channels_last = true", {{"precision.channels_last=true"}});
}

}  // namespace brim::doctor
