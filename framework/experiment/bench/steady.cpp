#include "framework/experiment/bench/steady.h"

#include <algorithm>
#include <cmath>

#include "framework/experiment/bench/statistics.h"

namespace brim::experiment {
namespace {

constexpr size_t kWindow = 5;  // steps, so that one or two slow ones decide nothing

bool are_near(double a, double b) {
  return std::abs(a - b) <= kSteadyWithin * std::max(std::abs(a), std::abs(b));
}

}  // namespace

std::optional<size_t> steady_from(std::span<const double> step_s, size_t measured) {
  const std::span<const double> last = step_s.last(measured);
  if (measured >= 2 * kWindow &&
      !are_near(median(last.first(measured / 2)), median(last.last(measured / 2)))) {
    return std::nullopt;
  }
  const double aim = median(last);
  const size_t window = std::min(kWindow, measured);
  for (size_t at = 0; at + measured <= step_s.size(); ++at) {
    if (are_near(median(step_s.subspan(at, window)), aim)) return at;
  }
  return std::nullopt;
}

}  // namespace brim::experiment
