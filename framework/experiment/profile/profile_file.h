// The profile that a run's folder holds.
#pragma once

#include <filesystem>
#include <optional>

#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

/// nullopt where there is none, or none that can be read, which a warning says.
std::optional<telemetry::StepProfile> find_profile(const std::filesystem::path& folder);

}  // namespace brim::experiment
