// A chart of many trials at once: an upright axis for each key and one for the metric, and a line
// for each trial across them.
#pragma once

#include <span>
#include <string>

#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

/// An SVG; "" where no trial has a result. The best trial's line is drawn over the others.
std::string parallel_coordinates(const Plan& plan, std::span<const Trial> trials);

}  // namespace brim::sweep
