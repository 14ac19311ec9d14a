// How positions are split: evenly, in pairs, or by weights that change as training continues. Pure
// functions of what every rank knows, so that the parts of all ranks fit together.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace brim::data {

/// A run of consecutive positions.
struct PositionRange {
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const PositionRange&) const = default;
};

/// Part `index` of `count` positions cut into `parts` runs whose sizes differ by at most one, the
/// larger ones first.
PositionRange split(int64_t count, int64_t parts, int64_t index);

/// The same with positions 2j and 2j + 1 in the same part; an odd last position goes to the last
/// part. Sizes differ by at most two.
PositionRange split_pairs(int64_t count, int64_t parts, int64_t index);

/// Part `index` of `count` positions cut in proportion to the weights, which are positive: each
/// boundary lies at the nearest position.
PositionRange split_by_weights(int64_t count, const std::vector<double>& weights, int64_t index);

/// The ranks' shares of a step, even at first. Thread-safe.
class RankPartition {
 public:
  /// No rank's weight is more than this many times the mean.
  static constexpr int64_t kMaxWeight = 2;

  explicit RankPartition(int64_t world);

  /// The weights from a step on, counted from the start of training. A loader reads ahead: that
  /// step lies beyond what any rank's has begun.
  void change(int64_t from_step, std::vector<double> weights);

  /// A rank's part of the `count` positions of a step.
  PositionRange part(int64_t step, int64_t count, int64_t rank, bool pairs) const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<double>> weights_;  // by the step that they begin with
};

}  // namespace brim::data
