#include "framework/experiment/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace brim::experiment {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  std::ranges::sort(result);
  return result;
}

double quantile_of_sorted(const std::vector<double>& values, double q) {
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  if (below + 1 >= values.size()) return values.back();
  const double share = place - static_cast<double>(below);
  return values[below] + share * (values[below + 1] - values[below]);
}

/// The interval between the value at `rank` (from 1) and the one as far from the other end, for the
/// largest rank that the probabilities allow: probability[i] is that of the statistic being i.
Interval by_ranks(const std::vector<double>& values, const std::vector<double>& probability) {
  double tail = probability[0];
  size_t rank = 1;
  while (rank < values.size() / 2 && tail + probability[rank] <= (1 - kConfidence) / 2) {
    tail += probability[rank];
    ++rank;
  }
  return {values[rank - 1], values[values.size() - rank], std::max(0.0, 1 - 2 * tail)};
}

/// Of a fair coin: heads in n throws.
std::vector<double> binomial(size_t n) {
  std::vector<double> result = {1.0};
  for (size_t thrown = 1; thrown <= n; ++thrown) {
    std::vector<double> next(thrown + 1, 0.0);
    for (size_t heads = 0; heads < thrown; ++heads) {
      next[heads] += result[heads] / 2;
      next[heads + 1] += result[heads] / 2;
    }
    result = std::move(next);
  }
  return result;
}

/// Of the Mann-Whitney statistic U of n and m values of one distribution, by the recursion
/// of Mann & Whitney (1947): the largest value is one of the n with probability n / (n + m), and
/// then exceeds all m.
std::vector<double> mann_whitney(size_t n, size_t m) {
  // rows[j]: the distribution for the present i and j.
  std::vector<std::vector<double>> rows(m + 1, std::vector<double>{1.0});
  for (size_t i = 1; i <= n; ++i) {
    for (size_t j = 1; j <= m; ++j) {
      const double first = static_cast<double>(i) / static_cast<double>(i + j);
      std::vector<double> next(i * j + 1, 0.0);
      for (size_t u = 0; u < rows[j].size(); ++u) next[u + j] += first * rows[j][u];
      for (size_t u = 0; u < rows[j - 1].size(); ++u) next[u] += (1 - first) * rows[j - 1][u];
      rows[j] = std::move(next);
    }
  }
  return rows[m];
}

}  // namespace

double quantile(std::span<const double> values, double q) {
  return quantile_of_sorted(sorted(values), q);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double coefficient_of_variation(std::span<const double> values) {
  if (values.size() < 2) return 0.0;
  const auto count = static_cast<double>(values.size());
  double mean = 0.0;
  for (const double value : values) mean += value / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1)) / mean;
}

Interval median_interval(std::span<const double> values) {
  return by_ranks(sorted(values), binomial(values.size()));
}

Ratio ratio_of(std::span<const double> b, std::span<const double> a) {
  std::vector<double> logs;  // of all ratios
  logs.reserve(a.size() * b.size());
  for (const double over : b) {
    for (const double under : a) logs.push_back(std::log(over / under));
  }
  std::ranges::sort(logs);
  const Interval interval = by_ranks(logs, mann_whitney(b.size(), a.size()));
  return {std::exp(quantile_of_sorted(logs, 0.5)),
          {std::exp(interval.low), std::exp(interval.high), interval.confidence}};
}

}  // namespace brim::experiment
