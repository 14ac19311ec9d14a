// Loops of softmax cross-entropy over a row of logits, [C] side by side. Free of LibTorch;
// cross_entropy.cpp is compiled once for each instruction set of isa.h.
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/table.h"

namespace brim::nn::loops {

/// What a row's loss needs: with these, softmax(x) = exp(x - highest) / exponentials.
template <class T>
struct SoftmaxSums {
  Wide<T> highest;      // of x
  double exponentials;  // Σ exp(x - highest)
  double values;        // Σ x
};

template <class T>
struct CrossEntropyLoops {
  SoftmaxSums<T> (*sums)(const T* x, int64_t count);
  /// gradient = scale · exp(x - highest) - offset
  void (*gradient)(const T* x, int64_t count, Wide<T> highest, Wide<T> scale, Wide<T> offset,
                   T* gradient);
};

/// The loops for an instruction set, which is available.
Table<CrossEntropyLoops> cross_entropy_table(Isa isa);

/// The best for T, which is float, double or BFloat16.
template <class T>
const CrossEntropyLoops<T>& cross_entropy_loops() {
  static const Table<CrossEntropyLoops> best = cross_entropy_table(best_isa());
  return best.of<T>();
}

}  // namespace brim::nn::loops
