// A fully connected layer as PyTorch runs it in Python.
#pragma once

#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>

namespace brim::nn {

/// [N, inputs] to [N, outputs]. torch::nn::Linear::forward() multiplies by a transposed view of the
/// weight, which autocast would cast anew in every pass; this lets it keep the cast of the weight.
inline at::Tensor apply(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

}  // namespace brim::nn
