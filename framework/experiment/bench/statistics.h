// Statistics of few repeated measurements, without assuming a distribution: medians, intervals by
// ranks, ratios.
#pragma once

#include <span>

namespace brim::experiment {

/// The confidence that intervals aim at.
inline constexpr double kConfidence = 0.95;

/// Where a true value lies with probability `confidence`, which is below kConfidence where there
/// are too few values for that.
struct Interval {
  double low = 0.0;
  double high = 0.0;
  double confidence = 0.0;
};

struct Ratio {
  double value = 0.0;
  Interval interval;
};

/// The value below which the share `q` (0 to 1) of all lies, interpolated linearly (Hyndman & Fan,
/// "Sample quantiles in statistical packages", 1996, type 7; NumPy's default). `values` not empty.
double quantile(std::span<const double> values, double q);
double median(std::span<const double> values);

/// Standard deviation (n - 1) by mean; 0 for fewer than two values.
double coefficient_of_variation(std::span<const double> values);

/// Of the median, by order statistics: the narrowest pair, as far from the lowest value as from the
/// highest, that covers it with at least kConfidence; else the whole range. Six values reach it
/// (Conover, "Practical nonparametric statistics", 3.2). `values` not empty.
Interval median_interval(std::span<const double> values);

/// How many times as large `b` is as `a`, all values positive, none empty, at most 100 each: the
/// median of all ratios of one of b to one of a (Hodges & Lehmann, 1963, on logarithms), with the
/// interval that inverts the exact Mann-Whitney test (Hollander & Wolfe, "Nonparametric statistical
/// methods", 4.3). Four values on either side reach kConfidence.
Ratio ratio_of(std::span<const double> b, std::span<const double> a);

}  // namespace brim::experiment
