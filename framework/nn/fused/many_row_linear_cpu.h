// brim::block_linear of bfloat16 (block_linear_cpu.h) where there are many rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "framework/nn/fused/dtypes.h"

namespace brim::nn::cpu {

/// left [N, K] · right [K, C], plus a bias [C] where there is one, to [N, C], rounded to bfloat16.
/// `right` is float32, without gaps or the transpose of what is, and rounded for the product.
at::Tensor many_row_product(const at::Tensor& left, const at::Tensor& right,
                            const MaybeTensor& bias);

/// gradient [N, O] and x [N, I], both without gaps, to the weight's gradient [O, I], laid out as
/// its transpose where `is_transposed`, and, where wanted, the bias's [O]; both float32.
std::pair<at::Tensor, at::Tensor> many_row_weight_gradients(const at::Tensor& gradient,
                                                            const at::Tensor& x, bool is_transposed,
                                                            bool of_bias);

}  // namespace brim::nn::cpu
