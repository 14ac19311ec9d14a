#include "framework/nn/init.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace brim::nn {

void truncated_normal_(const at::Tensor& tensor, double std, double bound) {
  const at::NoGradGuard no_grad;
  const auto cumulative = [](double x) { return (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0; };
  const double low = cumulative(-bound / std);
  const double high = cumulative(bound / std);
  tensor.uniform_(2 * low - 1, 2 * high - 1).erfinv_();
  tensor.mul_(std * std::numbers::sqrt2).clamp_(-bound, bound);
}

}  // namespace brim::nn
