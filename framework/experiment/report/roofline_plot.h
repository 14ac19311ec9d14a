// The roofline of a profile: operations a second of its products over their arithmetic intensity,
// below what the device's memory and its matrix units allow.
#pragma once

#include <string>

#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

/// A <section>; "" where nothing multiplies or no peak is known.
std::string draw_roofline(const telemetry::StepProfile& profile);

}  // namespace brim::experiment
