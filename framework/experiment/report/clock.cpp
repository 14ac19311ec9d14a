#include "framework/experiment/report/clock.h"

#include <algorithm>
#include <cmath>

namespace brim::experiment {

Clock::Clock(const RunData& run) {
  for (const Bucket& bucket : run.age_s.buckets()) {
    steps_.push_back(static_cast<double>(bucket.last_step));
    ages_s_.push_back(bucket.high);  // ages rise
  }
}

double Clock::at(double step) const {
  const auto after = static_cast<size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
  if (after < steps_.size() && steps_[after] == step) return ages_s_[after];
  if (after == 0) return ages_s_.front();
  // Beyond the last one at the pace of the last two.
  const size_t end = std::min(after, steps_.size() - 1);
  if (end == 0) return ages_s_.back();
  const double share = (step - steps_[end - 1]) / (steps_[end] - steps_[end - 1]);
  return std::lerp(ages_s_[end - 1], ages_s_[end], share);
}

}  // namespace brim::experiment
