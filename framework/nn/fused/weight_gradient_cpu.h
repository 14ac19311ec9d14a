// The gradient of a weight that many rows of bfloat16 are multiplied by: a product of two matrices
// over their rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn::cpu {

struct WeightGradients {
  at::Tensor weight;  // [O, I], laid out as its transpose where that was asked for
  at::Tensor bias;    // [O], undefined where it wasn't
};

/// Of gradient [N, O] and x [N, I], both without gaps; the results are float32.
using WeightGradientsOf = WeightGradients(const at::Tensor& gradient, const at::Tensor& x,
                                          bool is_transposed, bool of_bias);

/// The faster one for this CPU of those that it has.
WeightGradientsOf weight_gradients;

/// Whether this CPU has AVX512-BF16 and no AMX: then it is weight_gradients_in_pairs().
bool multiplies_over_rows();

/// Where pair_loops() multiply over rows.
WeightGradientsOf weight_gradients_in_pairs;
/// Where multiplies_bf16_pairs().
WeightGradientsOf weight_gradients_by_blocks;

}  // namespace brim::nn::cpu
