// Loops of layer normalisation (Ba, Kiros & Hinton, 2016) fused with the addition before it, over
// rows [count, C]. Free of LibTorch; layer_norm.cpp is compiled once for each instruction set of
// isa.h.
//
//   sum = x + branch,  y = (sum - mean) / std · weight + bias, mean and std of each row
#pragma once

#include <cstdint>

#include "framework/nn/fused/loops/rows.h"
#include "framework/nn/fused/loops/table.h"

namespace brim::nn::loops {

/// X is how x and the sum are stored, Y the branch and the result; W is Wide<X>.
template <class X, class Y>
struct LayerNormLoops {
  using W = Wide<X>;
  struct Forward {
    const X* x;
    const Y* branch;  // null: the norm is x's own, and sum is not written
    const W* weight;  // [C]
    const W* bias;    // [C]
    double eps;
    X* sum;
    W* mean;         // [count]
    W* inverse_std;  // [count]
    Y* y;
  };
  void (*forward)(Rows rows, Forward tensors);

  struct Backward {
    const Y* gradient;      // dL/dy
    const X* sum_gradient;  // what else dL/dsum is made of; null for none
    const X* sum;
    const W* mean;
    const W* inverse_std;
    const W* weight;
    X* x_gradient;       // dL/dsum
    Y* branch_gradient;  // the same; null where that serves
    W* scratch;          // [2, C]
    double* weight_sum;  // a channel's Σ dL/dweight is added to it
    double* bias_sum;
  };
  void (*backward)(Rows rows, Backward tensors);
};

struct LayerNormTable {
  LayerNormLoops<float, float> of_float;
  LayerNormLoops<double, double> of_double;
  LayerNormLoops<BFloat16, BFloat16> of_bfloat16;
  LayerNormLoops<float, BFloat16> of_mixed;
};

/// The loops for an instruction set, which is available.
LayerNormTable layer_norm_table(Isa isa);

/// The best there are.
template <class X, class Y>
const LayerNormLoops<X, Y>& layer_norm_loops() {
  static const LayerNormTable best = layer_norm_table(best_isa());
  if constexpr (std::is_same_v<X, double>) {
    return best.of_double;
  } else if constexpr (std::is_same_v<X, BFloat16>) {
    return best.of_bfloat16;
  } else if constexpr (std::is_same_v<Y, BFloat16>) {
    return best.of_mixed;
  } else {
    return best.of_float;
  }
}

}  // namespace brim::nn::loops
