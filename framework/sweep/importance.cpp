#include "framework/sweep/importance.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "framework/sweep/table.h"

namespace brim::sweep {
namespace {

constexpr size_t kFewestTrials = 10;
constexpr size_t kBins = 5;  // of a key with more values, where all are numbers

/// Of each value among all, from 1; equal values share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  std::vector<double> ranks;
  for (const double value : values) {
    const auto first = std::ranges::lower_bound(sorted, value);
    const auto last = std::ranges::upper_bound(sorted, value);
    ranks.push_back(static_cast<double>((first - sorted.begin()) + (last - sorted.begin()) + 1) /
                    2);
  }
  return ranks;
}

/// The group of each trial: its value's number, or the fifth that it lies in.
std::vector<size_t> groups_of(const std::vector<std::string>& values) {
  std::map<std::string, size_t> numbers;
  std::vector<double> as_numbers;
  for (const std::string& value : values) {
    numbers.try_emplace(value, numbers.size());
    if (const auto number = number_in(value)) as_numbers.push_back(*number);
  }
  std::vector<size_t> groups;
  if (numbers.size() <= kBins || as_numbers.size() < values.size()) {
    for (const std::string& value : values) groups.push_back(numbers.at(value));
    return groups;
  }
  for (const double rank : ranks_of(as_numbers)) {
    const double place = (rank - 0.5) / static_cast<double>(values.size());
    groups.push_back(std::min(kBins - 1, static_cast<size_t>(place * kBins)));
  }
  return groups;
}

double share_of(const std::vector<double>& ranks, const std::vector<size_t>& groups) {
  const auto count = static_cast<double>(ranks.size());
  const double middle = (count + 1) / 2;
  std::map<size_t, std::pair<double, double>> sums;  // of a group's ranks, and how many
  double all = 0.0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto& [sum, members] = sums[groups[i]];
    sum += ranks[i];
    members += 1;
    all += (ranks[i] - middle) * (ranks[i] - middle);
  }
  double between = 0.0;
  for (const auto& [group, sum] : sums) {
    const double apart = sum.first / sum.second - middle;
    between += sum.second * apart * apart;
  }
  const auto parts = static_cast<double>(sums.size());
  if (all <= 0 || parts < 2 || parts >= count) return 0.0;
  const double h = (count - 1) * between / all;
  return std::clamp((h - parts + 1) / (count - parts), 0.0, 1.0);
}

}  // namespace

std::vector<Importance> importance_of_keys(const Plan& plan, std::span<const Trial> trials) {
  std::vector<const Trial*> seen;
  std::vector<double> metrics;
  for (const Trial& trial : trials) {
    if (trial.results.empty()) continue;
    seen.push_back(&trial);
    const double metric = trial.results.front().metric;
    metrics.push_back(plan.is_lower_better ? -metric : metric);
  }
  if (seen.size() < kFewestTrials) return {};
  const std::vector<double> ranks = ranks_of(metrics);
  std::vector<Importance> result;
  for (const std::string& key : keys_of(trials)) {
    std::vector<std::string> values;
    for (const Trial* trial : seen) values.push_back(value_at(*trial, key));
    result.push_back({key, share_of(ranks, groups_of(values))});
  }
  std::ranges::stable_sort(result, std::greater<>{}, &Importance::share);
  return result;
}

}  // namespace brim::sweep
