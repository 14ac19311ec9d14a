#include "framework/data/augment/beta.h"

#include <cmath>
#include <numbers>

namespace brim::data {
namespace {

/// In (0, 1].
double above_zero(RandomStream& random) { return 1 - random.uniform(); }

/// Box and Muller's method.
double draw_normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(above_zero(random)));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// The logarithm of a gamma variable of shape alpha.
double draw_log_gamma(double alpha, RandomStream& random) {
  if (alpha < 1) {
    const double smaller = std::log(above_zero(random)) / alpha;
    return smaller + draw_log_gamma(alpha + 1, random);
  }
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal(random);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(above_zero(random)) < 0.5 * x * x + d * (1 - v + std::log(v))) {
      return std::log(d) + std::log(v);
    }
  }
}

}  // namespace

double draw_beta(double alpha, RandomStream& random) {
  const double log_x = draw_log_gamma(alpha, random);
  const double log_y = draw_log_gamma(alpha, random);
  return 1 / (1 + std::exp(log_y - log_x));
}

}  // namespace brim::data
