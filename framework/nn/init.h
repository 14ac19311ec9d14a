// Initial values that torch::nn::init lacks.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::nn {

/// Fills a tensor from a normal distribution of mean 0, cut off at ±`bound`: by the
/// inverse of its cumulative distribution at uniform numbers, as torch.nn.init.trunc_normal_ does,
/// so that equal seeds give equal values.
void truncated_normal_(const at::Tensor& tensor, double std, double bound = 2.0);

}  // namespace brim::nn
