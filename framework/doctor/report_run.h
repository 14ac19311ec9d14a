// A run as a report shows it: with what its diagnosis and its profile point to.
#pragma once

#include <optional>

#include "framework/experiment/report/report.h"

namespace brim::doctor {

/// Without findings where the run is too short to be judged and has no profile.
experiment::ReportRun report_run(experiment::RunData data,
                                 std::optional<telemetry::StepProfile> profile);

}  // namespace brim::doctor
