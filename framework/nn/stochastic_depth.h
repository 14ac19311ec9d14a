// Stochastic depth (Huang et al., "Deep networks with stochastic depth", ECCV 2016): in training,
// samples skip a residual branch at random.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// The result [N, …] of a residual branch, of which each sample is dropped with `probability` in
/// [0, 1) and otherwise divided by 1 - probability. Unchanged outside training.
at::Tensor stochastic_depth(const at::Tensor& branch, double probability, bool is_training);

}  // namespace brim::nn
