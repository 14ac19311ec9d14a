// What the fused operators' halves, on the CPU and on CUDA, say alike of the tensors they are
// given.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace brim::nn {

using MaybeTensor = std::optional<at::Tensor>;

/// The format that parameters, statistics and sums have beside x: float64 for float64, float32 for
/// all others.
inline at::ScalarType opmath_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace brim::nn
