// A profile as HTML: a page of its own, and the part of it that a run's report shows too.
#pragma once

#include <string>
#include <vector>

#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

/// Treemap by modules, roofline, and tables of operators, modules and fused forms. Texts from the
/// profile are escaped.
std::string profile_section(const telemetry::StepProfile& profile);

/// One HTML file without scripts; `findings`, a sentence each, come first. `made_at` is shown at
/// its end.
std::string make_profile_page(const telemetry::StepProfile& profile,
                              const std::vector<std::string>& findings, const std::string& made_at);

}  // namespace brim::experiment
