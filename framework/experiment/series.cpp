#include "framework/experiment/series.h"

#include <algorithm>
#include <cmath>

namespace brim::experiment {
namespace {

void join(Bucket& left, const Bucket& right) {
  left.last_step = right.last_step;
  left.count += right.count;
  left.sum += right.sum;
  left.low = std::min(left.low, right.low);
  left.high = std::max(left.high, right.high);
}

}  // namespace

void Series::add(int64_t step, double value) {
  if (!std::isfinite(value)) return;
  step = std::max(step, last_step_);
  if (empty()) {
    first_ = value;
    low_ = high_ = value;
  }
  last_step_ = step;
  last_ = value;
  sum_ += value;
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
  quantiles_.add(value);

  const Bucket point = {step / steps_per_bucket_, step, step, 1, value, value, value};
  if (!buckets_.empty() && buckets_.back().stretch == point.stretch) {
    join(buckets_.back(), point);
    return;
  }
  buckets_.push_back(point);
  while (buckets_.size() > kMaxBuckets) thin_out();
}

/// Twice as many steps to a bucket.
void Series::thin_out() {
  steps_per_bucket_ *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket bucket = buckets_[i];
    bucket.stretch /= 2;
    if (kept > 0 && buckets_[kept - 1].stretch == bucket.stretch) {
      join(buckets_[kept - 1], bucket);
    } else {
      buckets_[kept++] = bucket;
    }
  }
  buckets_.resize(kept);
}

double Series::mean() const { return empty() ? 0.0 : sum_ / static_cast<double>(count()); }
double Series::low() const { return low_; }
double Series::high() const { return high_; }

}  // namespace brim::experiment
