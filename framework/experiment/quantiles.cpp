#include "framework/experiment/quantiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace brim::experiment {
namespace {

// The exponent and the first six bits of the fraction, as one number.
constexpr int kDroppedBits = 52 - 6;
const double kLowest = std::ldexp(1.0, -40);
const double kHighest = std::ldexp(1.0, 60);

int64_t place_of(double value) {
  return static_cast<int64_t>(std::bit_cast<uint64_t>(std::min(value, kHighest)) >> kDroppedBits);
}

/// The middle of the values that share a place.
double value_at(int64_t place) {
  const auto bits = [](int64_t at) { return static_cast<uint64_t>(at) << kDroppedBits; };
  return (std::bit_cast<double>(bits(place)) + std::bit_cast<double>(bits(place + 1))) / 2;
}

}  // namespace

void Quantiles::add(double value) {
  ++count_;
  if (!(value >= kLowest)) {
    ++zeros_;
    return;
  }
  const int64_t place = place_of(value);
  if (counts_.empty()) lowest_ = place;
  if (place < lowest_) {
    counts_.insert(counts_.begin(), static_cast<size_t>(lowest_ - place), 0);
    lowest_ = place;
  }
  const auto at = static_cast<size_t>(place - lowest_);
  if (at >= counts_.size()) counts_.resize(at + 1, 0);
  ++counts_[at];
}

double Quantiles::at(double q) const {
  const auto wanted = static_cast<int64_t>(std::ceil(q * static_cast<double>(count_)));
  int64_t seen = zeros_;
  if (seen >= wanted) return 0.0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return value_at(lowest_ + static_cast<int64_t>(i));
  }
  return 0.0;
}

}  // namespace brim::experiment
