// A profile as tables for a terminal, and as JSON for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

/// Where the step's time went: phases, then the `most` longest operators and modules, and the
/// choices between fused forms and LibTorch's.
std::string describe(const telemetry::StepProfile& profile, size_t most);

/// All of the profile, with the sums by operator and by module, and the rest of the step.
nlohmann::json summary_json(const telemetry::StepProfile& profile);

}  // namespace brim::experiment
