#include "framework/data/order/rank_partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace brim::data {

PositionRange split(int64_t count, int64_t parts, int64_t index) {
  const int64_t base = count / parts;
  const int64_t larger = count % parts;
  return {index * base + std::min(index, larger), base + (index < larger ? 1 : 0)};
}

PositionRange split_pairs(int64_t count, int64_t parts, int64_t index) {
  PositionRange part = split(count / 2, parts, index);
  part.first *= 2;
  part.count *= 2;
  if (index + 1 == parts) part.count += count % 2;
  return part;
}

PositionRange split_by_weights(int64_t count, const std::vector<double>& weights, int64_t index) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto boundary = [&](int64_t before) {
    if (before == static_cast<int64_t>(weights.size())) return count;
    const double sum = std::accumulate(weights.begin(), weights.begin() + before, 0.0);
    return static_cast<int64_t>(std::llround(static_cast<double>(count) * sum / total));
  };
  const int64_t first = boundary(index);
  return {first, boundary(index + 1) - first};
}

RankPartition::RankPartition(int64_t world) {
  weights_[0] = std::vector<double>(static_cast<size_t>(world), 1.0);
}

void RankPartition::change(int64_t from_step, std::vector<double> weights) {
  const std::lock_guard lock(mutex_);
  weights_[from_step] = std::move(weights);
}

PositionRange RankPartition::part(int64_t step, int64_t count, int64_t rank, bool pairs) const {
  const std::lock_guard lock(mutex_);
  const std::vector<double>& weights = std::prev(weights_.upper_bound(step))->second;
  if (!pairs) return split_by_weights(count, weights, rank);
  PositionRange part = split_by_weights(count / 2, weights, rank);
  part.first *= 2;
  part.count *= 2;
  if (rank + 1 == static_cast<int64_t>(weights.size())) part.count += count % 2;
  return part;
}

}  // namespace brim::data
