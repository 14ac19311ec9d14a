#include "framework/distributed/balance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace brim::distributed {
namespace {

constexpr double kLeast = 0.25, kMost = 2.0;
constexpr double kSmallestChange = 0.02;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Within the bounds and with a mean of 1: what one rank may not take, the others share.
void bound(std::vector<double>& weights) {
  const auto count = static_cast<double>(weights.size());
  for (size_t round = 0; round < weights.size(); ++round) {
    const double scale = count / sum(weights);
    bool is_done = true;
    for (double& weight : weights) {
      const double bounded = std::clamp(weight * scale, kLeast, kMost);
      is_done = is_done && std::abs(bounded - weight) < 1e-12;
      weight = bounded;
    }
    if (is_done) return;
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
