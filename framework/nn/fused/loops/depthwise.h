// Loops of depthwise convolutions (groups = channels = outputs) over channels_last images, a vector
// of channels at a time: rows are widened with zeros around them, and outputs are summed up in
// registers. Free of LibTorch; depthwise.cpp is compiled once for each instruction set of
// isa.h.
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/table.h"

namespace brim::nn::loops {

/// Of one side of the images, height or width.
struct DepthwiseSide {
  int64_t in, out, kernel, stride, padding;
  int64_t spread = 1;  // steps from one input to the next; between them are zeros
};

/// Kernels are at most this high, and 3, 5 or 7 wide.
inline constexpr int64_t kHighestKernel = 7;

struct DepthwiseShape {
  int64_t channels;  // from one pixel to the next
  int64_t count;     // of the channels that are computed, at most `lanes`
  DepthwiseSide height, width;

  int64_t taps() const { return height.kernel * width.kernel; }
};

template <class T>
struct DepthwiseLoops {
  int64_t lanes;  // channels of a vector
  /// Values that `scratch` needs.
  int64_t (*scratch_values)(const DepthwiseShape& shape);
  /// One image: y [OH, OW, channels] from x [H, W, channels], weight [taps, channels] and bias
  /// [channels], which may be null; pointers are to the first of `count` channels.
  void (*convolve)(const DepthwiseShape& shape, const T* x, const Wide<T>* weight,
                   const Wide<T>* bias, T* y, Wide<T>* scratch);
  /// Adds an image's gradients of weight and bias to sums [taps + 1, channels]; of what convolve()
  /// takes with a spread of 1.
  void (*add_weight_gradients)(const DepthwiseShape& shape, const T* gradient, const T* x,
                               Wide<T>* sums, Wide<T>* scratch);
};

/// The loops for an instruction set, which is available.
Table<DepthwiseLoops> depthwise_table(Isa isa);

/// The best for T, which is float, double or BFloat16.
template <class T>
const DepthwiseLoops<T>& depthwise_loops() {
  static const Table<DepthwiseLoops> best = depthwise_table(best_isa());
  return best.of<T>();
}

}  // namespace brim::nn::loops
