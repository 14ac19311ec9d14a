// Percentiles of a stream of any length in bounded memory: counts by value, 64 to an octave, so
// that what is read back is within 1.6 % of the truth.
#pragma once

#include <cstdint>
#include <vector>

namespace brim::experiment {

class Quantiles {
 public:
  /// A finite value; what is below 2^-40 (negative values too) counts as 0, what is over 2^60 as
  /// 2^60.
  void add(double value);

  /// The value below which the share `q` (0 to 1) of all lies; 0 where nothing was added.
  double at(double q) const;

  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
  int64_t zeros_ = 0;
  int64_t lowest_ = 0;           // of counts_[0]
  std::vector<int64_t> counts_;  // from the lowest value seen to the highest
};

}  // namespace brim::experiment
