#include "framework/distributed/balance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace brim::distributed {
namespace {

constexpr double kMinWeight = 0.25, kMaxWeight = 2.0;
constexpr double kSmallestChange = 0.02;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Within the bounds and with a mean of 1: what ranks at a bound leave over or lack, the others
/// share in proportion.
void bound(std::vector<double>& weights) {
  std::vector<bool> is_bound(weights.size(), false);
  for (bool changed = true; changed;) {
    double left = static_cast<double>(weights.size()), free = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (is_bound[i]) {
        left -= weights[i];
      } else {
        free += weights[i];
      }
    }
    changed = false;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (is_bound[i]) continue;
      weights[i] *= left / free;
      if (weights[i] >= kMinWeight && weights[i] <= kMaxWeight) continue;
      weights[i] = std::clamp(weights[i], kMinWeight, kMaxWeight);
      is_bound[i] = changed = true;
    }
  }
}

}  // namespace

std::optional<std::vector<double>> next_weights(const std::vector<double>& now,
                                                const std::vector<double>& samples_per_s) {
  const double mean = sum(samples_per_s) / static_cast<double>(samples_per_s.size());
  if (!(mean > 0) || !std::isfinite(mean)) return std::nullopt;
  std::vector<double> next(now.size());
  for (size_t i = 0; i < now.size(); ++i) next[i] = (now[i] + samples_per_s[i] / mean) / 2;
  bound(next);
  for (size_t i = 0; i < now.size(); ++i) {
    if (std::abs(next[i] - now[i]) >= kSmallestChange * now[i]) return next;
  }
  return std::nullopt;
}

}  // namespace brim::distributed
