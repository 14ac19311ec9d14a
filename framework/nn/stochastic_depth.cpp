#include "framework/nn/stochastic_depth.h"

#include <ATen/ATen.h>

#include <vector>

namespace brim::nn {

at::Tensor stochastic_depth(const at::Tensor& branch, double probability, bool is_training) {
  if (!is_training || probability == 0) return branch;
  std::vector<int64_t> shape(static_cast<size_t>(branch.dim()), 1);
  shape[0] = branch.size(0);
  const double kept = 1.0 - probability;
  return branch * at::empty(shape, branch.options()).bernoulli_(kept).div_(kept);
}

}  // namespace brim::nn
