// The device is busy now and idle then: something that it needs comes in bursts.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_swing(const RunFacts& facts) {
  if (facts.is_cuda && !*facts.is_cuda) return silent();
  if (!facts.busy_percent) return not_recorded("utilisation");
  const double swing = facts.busy_percent->p95 - facts.busy_percent->p5;
  const auto severity = reached(swing, kSwing);
  if (!severity) return silent();
  return found(*severity, 1 - facts.busy_percent->mean / 100,
               fmt::format("GPU utilisation varies between {:.0f} % and {:.0f} %",
                           facts.busy_percent->p5, facts.busy_percent->p95),
               "data.prefetch = 8 evens out a loader in bursts; rarer checkpoints and evaluations "
               "(checkpoint.every_steps, eval.every_epochs) what they interrupt",
               {{"data.prefetch=8"}});
}

}  // namespace brim::doctor
