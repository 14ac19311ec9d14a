// Loops of batch normalisation fused with what follows it, over rows [count, C] of a channels_last
// tensor, with the channels side by side. Free of LibTorch; batch_norm.cpp is compiled once for
// each instruction set of isa.h.
//
//   y = max(0, (x - mean) · scale + bias + residual)
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/rows.h"
#include "framework/nn/fused/loops/table.h"

namespace brim::nn::loops {

/// Per-channel factors of the forward pass, [C] each: scale is weight / std.
template <class T>
struct Factors {
  const Wide<T>* mean;
  const Wide<T>* scale;
  const Wide<T>* bias;
};

/// Which gradients the ReLU lets through: all, where there is none; those where y, made again from
/// x, is positive; or those where the y that was kept is.
enum class Mask { kNone, kFromInput, kFromOutput };

template <class T>
struct BackwardInputs {
  const T* gradient;  // dL/dy
  const T* x;
  const T* y;  // for kFromOutput
  Factors<T> factors;
  Mask mask;
};

template <class T>
struct BatchNormLoops {
  /// Adds a channel's Σ(x - shift) to sum and Σ(x - shift)² to squares.
  void (*moments)(Rows rows, const T* x, const Wide<T>* shift, double* sum, double* squares);

  /// residual: null for none.
  void (*normalise)(Rows rows, const T* x, const T* residual, Factors<T> factors, bool relu, T* y);

  /// With g = the gradients that the mask lets through: adds Σg to sum and Σg·(x - mean) to
  /// products; g goes to `masked` unless that is null.
  void (*gradient_sums)(Rows rows, BackwardInputs<T> inputs, T* masked, double* sum,
                        double* products);

  /// x_gradient = scale · g + slope · (x - mean) + offset; slope and offset [C]. The mask is not
  /// kFromOutput.
  void (*input_gradient)(Rows rows, BackwardInputs<T> inputs, const Wide<T>* slope,
                         const Wide<T>* offset, T* x_gradient);
};

/// The loops for an instruction set, which is available.
Table<BatchNormLoops> batch_norm_table(Isa isa);

/// The best for T, which is float, double or BFloat16.
template <class T>
const BatchNormLoops<T>& batch_norm_loops() {
  static const Table<BatchNormLoops> best = batch_norm_table(best_isa());
  return best.of<T>();
}

}  // namespace brim::nn::loops
