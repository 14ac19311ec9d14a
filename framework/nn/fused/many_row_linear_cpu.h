// The products of brim::block_linear (block_linear_cpu.h) of many rows of bfloat16.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused/dtypes.h"

namespace brim::nn::cpu {

/// left [N, K] · right [K, C], plus a bias [C] where there is one, to [N, C], rounded to bfloat16.
/// `right` is float32, without gaps or the transpose of what is, and rounded for the product.
at::Tensor many_row_product(const at::Tensor& left, const at::Tensor& right,
                            const MaybeTensor& bias);

}  // namespace brim::nn::cpu
