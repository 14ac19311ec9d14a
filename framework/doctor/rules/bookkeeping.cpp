// Lines of metrics or histograms of gradients are written more often than they are read.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_bookkeeping(const RunFacts& facts) {
  if (!facts.phases || !facts.metrics_every) return not_recorded("how often metrics are written");
  const auto severity = reached(facts.share(Phase::kOther), kOtherShare);
  if (!severity) return silent();
  Settings rarer;
  std::string change;
  const auto propose = [&](const char* key, int64_t now, int64_t usual) {
    if (now < 1 || now >= usual) return;
    rarer.push_back(fmt::format("{}={}", key, usual));
    change += fmt::format("{}{} = {}", change.empty() ? "" : ", ", key, usual);
  };
  propose("telemetry.every_steps", *facts.metrics_every, kUsualEverySteps);
  propose("telemetry.histograms_every_steps", facts.histograms_every.value_or(0),
          kUsualHistogramSteps);
  if (rarer.empty()) return silent();
  return found(*severity, facts.share(Phase::kOther),
               fmt::format("bookkeeping: {:.0f} % of step time passes between the phases, where "
                           "metrics are written",
                           100 * facts.share(Phase::kOther)),
               change, {rarer});
}

}  // namespace brim::doctor
