// One metric over a run's steps, in bounded memory however long the run: neighbouring points are
// put together, and each heap keeps its mean and its extremes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/experiment/quantiles.h"

namespace brim::experiment {

/// Points of a stretch of steps, as one.
struct Bucket {
  int64_t stretch = 0;  // step / the steps of a bucket
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t count = 0;
  double sum = 0.0;
  double low = 0.0;
  double high = 0.0;

  double mean() const { return sum / static_cast<double>(count); }
};

class Series {
 public:
  static constexpr size_t kMaxBuckets = 1024;

  /// Steps from 0 on, in rising order; one that falls back joins the last bucket. Values that are
  /// not finite are left out.
  void add(int64_t step, double value);

  /// Never more than kMaxBuckets, in order of their steps; a point each while that suffices.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  int64_t count() const { return quantiles_.count(); }
  bool empty() const { return count() == 0; }
  /// Of all points; 0 where there are none.
  double mean() const;
  double low() const;
  double high() const;
  double last() const { return last_; }
  int64_t last_step() const { return last_step_; }
  /// The sum of all points but the first: a run's first line holds its warm-up.
  double sum_after_first() const { return sum_ - first_; }
  const Quantiles& quantiles() const { return quantiles_; }

 private:
  void thin_out();

  std::vector<Bucket> buckets_;
  int64_t steps_per_bucket_ = 1;
  int64_t last_step_ = 0;
  double first_ = 0.0;
  double last_ = 0.0;
  double sum_ = 0.0;
  double low_ = 0.0;
  double high_ = 0.0;
  Quantiles quantiles_;
};

}  // namespace brim::experiment
