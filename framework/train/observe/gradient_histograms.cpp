#include "framework/train/observe/gradient_histograms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "framework/nn/model.h"

namespace brim::train {
namespace {

// Four buckets to a doubling, from 2^-40 to 2^16, both ways from zero.
constexpr int kSmallest = -40, kLargest = 16, kToADoubling = 4;
constexpr int64_t kPerSign = (kLargest - kSmallest) * kToADoubling + 1;
constexpr int64_t kBuckets = 2 * kPerSign + 1;
constexpr int64_t kPiece = 1 << 18;  // values counted at a time, which bounds the memory it takes

// A parameter's statistics: these, then its buckets.
enum Statistic { kMinimum, kMaximum, kCount, kSum, kSumOfSquares, kStatistics };

/// The upper bounds of all buckets but the last, which has none.
std::vector<double> upper_bounds() {
  std::vector<double> bounds;
  for (int64_t i = kPerSign; i-- > 0;) {
    bounds.push_back(-std::exp2(kSmallest + static_cast<double>(i) / kToADoubling));
  }
  for (int64_t i = kPerSign; i-- > 0;) bounds.push_back(-bounds[static_cast<size_t>(i)]);
  return bounds;
}

/// Float64 [kStatistics + kBuckets] of values [N].
at::Tensor statistics_of(const at::Tensor& values, const at::Tensor& limits) {
  const at::Tensor is_finite = values.isfinite();
  const at::Tensor finite = at::where(is_finite, values, at::zeros({}, values.options()));
  // What is not finite is counted in a place of its own, at the end.
  const at::Tensor place = at::where(is_finite, at::bucketize(finite, limits), kBuckets);
  const at::Tensor counts =
      at::zeros({kBuckets + 1}, place.options()).scatter_add_(0, place, at::ones_like(place));
  const at::Tensor exact = finite.to(at::kDouble);
  const auto extreme = [&](double otherwise) {
    return at::where(is_finite, exact, at::full({}, otherwise, exact.options()));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor statistics =
      at::stack({extreme(kInfinity).min(), extreme(-kInfinity).max(),
                 is_finite.sum().to(at::kDouble), exact.sum(), exact.square().sum()});
  return at::cat({statistics, counts.narrow(0, 0, kBuckets).to(at::kDouble)});
}

at::Tensor joined(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor sum = a + b;
  sum[kMinimum].copy_(at::minimum(a[kMinimum], b[kMinimum]));
  sum[kMaximum].copy_(at::maximum(a[kMaximum], b[kMaximum]));
  return sum;
}

telemetry::Histogram histogram_of(std::span<const float> statistics,
                                  std::span<const double> bounds) {
  telemetry::Histogram result{.minimum = statistics[kMinimum],
                              .maximum = statistics[kMaximum],
                              .count = statistics[kCount],
                              .sum = statistics[kSum],
                              .sum_of_squares = statistics[kSumOfSquares],
                              .limits = {},
                              .counts = {}};
  // From the empty bucket before the first filled one to the last filled one.
  const auto counts = statistics.subspan(kStatistics);
  const auto filled = [](float count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled) - counts.begin();
  const auto after = std::find_if(counts.rbegin(), counts.rend(), filled).base() - counts.begin();
  for (auto i = std::max<int64_t>(0, first - 1); i < after; ++i) {
    const auto at = static_cast<size_t>(i);
    result.limits.push_back(at < bounds.size() ? bounds[at] : std::numeric_limits<double>::max());
    result.counts.push_back(counts[at]);
  }
  return result;
}

}  // namespace

void GradientHistograms::count(int64_t step, const std::optional<at::Tensor>& scale) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model_.parameters()) {
    if (!limits_.defined()) {
      limits_ = at::tensor(upper_bounds(), at::kDouble).to(parameter.device(), at::kFloat);
    }
    at::Tensor statistics =
        at::zeros({kStatistics + kBuckets}, limits_.options().dtype(at::kDouble));
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined() && gradient.numel() > 0) {
      const at::Tensor values = gradient.detach().reshape({-1});
      bool is_first = true;
      for (const at::Tensor& piece : values.split(kPiece)) {
        const at::Tensor unscaled = scale ? piece.to(at::kFloat) / *scale : piece.to(at::kFloat);
        const at::Tensor of_piece = statistics_of(unscaled, limits_);
        statistics = std::exchange(is_first, false) ? of_piece : joined(statistics, of_piece);
      }
    }
    all.push_back(statistics.to(at::kFloat));
  }
  if (!all.empty()) values_.push(step, at::cat(all), {});
}

std::optional<GradientHistograms::OfStep> GradientHistograms::pop(bool wait) {
  const auto arrived = values_.pop(wait);
  if (!arrived) return std::nullopt;
  static const std::vector<double> kBounds = upper_bounds();
  OfStep result{arrived->step, {}};
  std::span<const float> left = arrived->values;
  for (const auto& parameter : model_.named_parameters()) {
    const auto statistics = left.first(kStatistics + kBuckets);
    left = left.subspan(statistics.size());
    if (statistics[kCount] > 0) {
      result.histograms.emplace_back(parameter.key(), histogram_of(statistics, kBounds));
    }
  }
  return result;
}

}  // namespace brim::train
