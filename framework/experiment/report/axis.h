// Where an axis begins, ends, and has its marks.
#pragma once

#include <string>
#include <vector>

namespace brim::experiment {

struct Tick {
  double value;
  std::string text;
};

struct Axis {
  double low = 0.0;
  double high = 1.0;
  bool is_log = false;
  std::vector<Tick> ticks = {};  // within low and high

  /// 0 at the low end, 1 at the high one; values beyond stay there.
  double place(double value) const;
};

/// An axis from `low` to `high` or a little beyond, with about `wanted` marks at round values.
Axis linear_axis(double low, double high, int wanted);

/// The same by powers of ten; `low` is over 0.
Axis log_axis(double low, double high);

/// Steps: whole numbers, shortened as in "12k" and "1.5M".
Axis step_axis(double low, double high, int wanted);

/// Seconds from 0 on, marked in the unit that suits them: "30 s", "5 min", "2 h", "3 d".
Axis time_axis(double high_s, int wanted);

}  // namespace brim::experiment
