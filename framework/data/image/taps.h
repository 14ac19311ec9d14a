// The weights of antialiased resizing along one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/device/drawn_jpeg.h"

namespace brim::data {

enum class Filter { kBilinear, kBicubic };

/// What each output position is made of: source pixels first … first + count - 1, weighted by
/// weights[position * stride …]. Weights are fixed point with kWeightBits fractional bits; their
/// number is rounded up to an even one by a zero.
struct Taps {
  struct Run {
    int64_t first;
    int64_t count;
  };
  std::vector<Run> runs;
  std::vector<int16_t> weights;
  int64_t stride = 0;
  int64_t most = 0;   // the greatest count
  int64_t begin = 0;  // the first source pixel that is read
  int64_t end = 0;    // the one behind the last

  const int16_t* weights_of(int64_t position) const { return weights.data() + position * stride; }
};

inline constexpr int kWeightBits = 14;

/// Along one axis, the `in` pixels from `first` on become `out`; positions begin … begin + count -
/// 1 of these are wanted. The source is 1/shrink of the size that `first` and `in` speak of. Pixels
/// outside of first … first + in - 1 are not read.
struct Axis {
  int64_t first = 0;
  int64_t in = 0;
  int64_t out = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t shrink = 1;
};

/// Fills `taps`, whose memory is used again.
void make_taps(const Axis& axis, Filter filter, Taps& taps);
/// The same for a device.
device::AxisWeights weights_of(const Axis& axis, Filter filter);

}  // namespace brim::data
