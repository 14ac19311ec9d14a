#include "framework/data/image/taps.h"

#include <algorithm>
#include <cmath>

namespace brim::data {
namespace {

/// Reaches one pixel to each side.
double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

/// Keys' cubic with a = -0.5; reaches two pixels to each side.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

/// Fixed point, with the rounding errors given to the greatest weight, so that a plain area keeps
/// its value.
void quantize(const std::vector<double>& exact, double sum, int64_t count, int16_t* weights) {
  int32_t total = 0;
  int64_t greatest = 0;
  for (int64_t k = 0; k < count; ++k) {
    const double weight = exact[static_cast<size_t>(k)] / sum;
    weights[k] = static_cast<int16_t>(std::lround(weight * (1 << kWeightBits)));
    total += weights[k];
    if (weights[k] > weights[greatest]) greatest = k;
  }
  weights[greatest] = static_cast<int16_t>(weights[greatest] + (1 << kWeightBits) - total);
}

}  // namespace

void make_taps(const Axis& axis, Filter filter, Taps& taps) {
  const auto shrink = static_cast<double>(axis.shrink);
  const double origin = static_cast<double>(axis.first) / shrink;
  const int64_t low = axis.first / axis.shrink;
  const int64_t high = (axis.first + axis.in + axis.shrink - 1) / axis.shrink;
  const double scale = static_cast<double>(axis.in) / (shrink * static_cast<double>(axis.out));
  const double filter_scale = std::max(scale, 1.0);
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * filter_scale;
  const auto kernel = filter == Filter::kBilinear ? triangle : cubic;

  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 2;
  taps.stride += taps.stride % 2;
  taps.most = 0;
  taps.end = 0;
  taps.runs.resize(static_cast<size_t>(axis.count));
  taps.weights.assign(static_cast<size_t>(axis.count * taps.stride), 0);
  thread_local std::vector<double> exact;
  exact.resize(static_cast<size_t>(taps.stride));
  for (int64_t i = 0; i < axis.count; ++i) {
    const double center = origin + (static_cast<double>(axis.begin + i) + 0.5) * scale;
    const int64_t first = std::max(low, static_cast<int64_t>(std::floor(center - support + 0.5)));
    const int64_t last = std::min(high, static_cast<int64_t>(std::floor(center + support + 0.5)));
    const int64_t count = last - first;  // at least 1: the pixel under the center
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double distance = (static_cast<double>(k + first) - center + 0.5) / filter_scale;
      exact[static_cast<size_t>(k)] = kernel(distance);
      sum += exact[static_cast<size_t>(k)];
    }
    taps.runs[static_cast<size_t>(i)] = {first, count};
    taps.most = std::max(taps.most, count);
    taps.end = std::max(taps.end, last);
    quantize(exact, sum, count, taps.weights.data() + i * taps.stride);
  }
  taps.begin = taps.runs.front().first;
}

device::AxisWeights weights_of(const Axis& axis, Filter filter) {
  thread_local Taps taps;
  make_taps(axis, filter, taps);
  device::AxisWeights result;
  for (const auto [first, count] : taps.runs) {
    result.runs.push_back(static_cast<int32_t>(first));
    result.runs.push_back(static_cast<int32_t>(count));
  }
  result.weights.assign(taps.weights.begin(), taps.weights.end());
  result.stride = static_cast<int32_t>(taps.stride);
  return result;
}

}  // namespace brim::data
