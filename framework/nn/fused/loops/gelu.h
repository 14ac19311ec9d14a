// Loops of GELU (Hendrycks & Gimpel, 2016) fused with the bias before it, over rows [count, C].
// Free of LibTorch; gelu.cpp is compiled once for each instruction set of isa.h.
//
//   y = v · Φ(v) with v = x + bias, or with Φ's approximation σ(2 · sqrt(2/π) · (v + 0.044715 v³))
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/rows.h"
#include "framework/nn/fused/loops/table.h"

namespace brim::nn::loops {

/// Φ by the error function, or LibTorch's approximation "tanh".
enum class GeluForm { kErf, kTanh };

template <class T>
struct GeluLoops {
  void (*forward)(GeluForm form, Rows rows, const T* x, const Wide<T>* bias, T* y);
  /// Adds a channel's Σ of x_gradient, before it is rounded, to sum.
  void (*backward)(GeluForm form, Rows rows, const T* gradient, const T* x, const Wide<T>* bias,
                   T* x_gradient, double* sum);
};

/// The loops for an instruction set, which is available.
Table<GeluLoops> gelu_table(Isa isa);

/// The best for T, which is float, double or BFloat16.
template <class T>
const GeluLoops<T>& gelu_loops() {
  static const Table<GeluLoops> best = gelu_table(best_isa());
  return best.of<T>();
}

}  // namespace brim::nn::loops
