#include "framework/doctor/report_run.h"

#include <utility>

#include "framework/doctor/diagnosis.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {

experiment::ReportRun report_run(experiment::RunData data,
                                 std::optional<telemetry::StepProfile> profile) {
  experiment::ReportRun run{.data = std::move(data)};
  const Diagnosis diagnosis = diagnose(facts_of(run.data));
  if (!diagnosis.is_too_short) run.findings = diagnosis.verdict(diagnosis.findings.size());
  run.profile = std::move(profile);
  if (!run.profile) return run;
  if (!run.findings) run.findings.emplace();
  for (const NamedFinding& named : findings_of(*run.profile)) {
    run.findings->push_back(named.sentence());
  }
  return run;
}

}  // namespace brim::doctor
