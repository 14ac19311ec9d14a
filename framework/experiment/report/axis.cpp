#include "framework/experiment/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/base/units.h"

namespace brim::experiment {
namespace {

/// The smallest of 1, 2, 5 times a power of ten that is at least `rough`.
double round_up(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string with_decimals_of(double value, double distance) {
  const double size = std::max(std::abs(value), distance);
  if (size >= 1e3 && size < 1e7 && distance >= 1) return format_count(std::llround(value));
  if (size >= 1e7 || (value != 0 && size < 1e-3)) return fmt::format("{:.3g}", value);
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)), 0, 8);
  return fmt::format("{:.{}f}", value == 0 ? 0.0 : value, decimals);
}

std::string short_count(double value) {
  if (value >= 1e9) return fmt::format("{:g}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

/// Round values from `low` to `high`, `distance` apart.
std::vector<double> marks(double low, double high, double distance) {
  std::vector<double> values;
  const double first = std::ceil(low / distance - 1e-9);
  for (int i = 0; i < 64; ++i) {
    const double value = (first + i) * distance;
    if (value > high + distance * 1e-9) break;
    values.push_back(value);
  }
  return values;
}

}  // namespace

double Axis::place(double value) const {
  if (is_log) {
    const double at = std::log(std::max(value, low) / low) / std::log(high / low);
    return std::clamp(at, 0.0, 1.0);
  }
  return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

Axis linear_axis(double low, double high, int wanted) {
  if (!(high - low > std::abs(high) * 1e-9)) {  // one value: in the middle
    const double margin = high == 0 ? 1.0 : std::abs(high) * 0.1;
    low -= margin;
    high += margin;
  }
  const double distance = round_up((high - low) / wanted);
  Axis axis{.low = std::floor(low / distance + 1e-9) * distance,
            .high = std::ceil(high / distance - 1e-9) * distance};
  for (const double value : marks(axis.low, axis.high, distance)) {
    axis.ticks.push_back({value, with_decimals_of(value, distance)});
  }
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis{.low = low, .high = high, .is_log = true};
  const double decades = std::log10(high / low);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high;
       power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, power);
      if (value < low || value > high || (factor > 1 && decades > 2.5)) continue;
      axis.ticks.push_back({value, fmt::format("{:.3g}", value)});
    }
  }
  return axis;
}

Axis step_axis(double low, double high, int wanted) {
  if (high <= low) high = low + 1;
  const double distance = std::max(1.0, round_up((high - low) / wanted));
  Axis axis{.low = low, .high = high};
  for (const double value : marks(low, high, distance)) {
    axis.ticks.push_back({value, short_count(value)});
  }
  return axis;
}

Axis time_axis(double high_s, int wanted) {
  struct Unit {
    double seconds;
    double from_s;  // the shortest axis that has it
    const char* name;
  };
  constexpr Unit kUnits[] = {{86400, 2 * 86400, "d"}, {3600, 2 * 3600, "h"}, {60, 120, "min"}};
  Unit unit = {1, 0, "s"};
  for (const Unit& larger : kUnits) {
    if (high_s < larger.from_s) continue;
    unit = larger;
    break;
  }
  if (!(high_s > 0)) high_s = 1;
  const double distance = round_up(high_s / unit.seconds / wanted);
  Axis axis{.low = 0, .high = high_s};
  for (const double value : marks(0, high_s / unit.seconds, distance)) {
    axis.ticks.push_back({value * unit.seconds, fmt::format("{:.4g} {}", value, unit.name)});
  }
  return axis;
}

}  // namespace brim::experiment
