// Adam (Kingma & Ba, ICLR 2015) and AdamW (Loshchilov & Hutter, ICLR 2019), by LibTorch's fused
// kernels. In Adam weight decay is added to the gradient (L2), in AdamW it is decoupled.
#pragma once

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// State: "first_moment.<parameter>", "second_moment.<parameter>", and "step.<parameter>", a
/// float32 scalar that counts the steps not skipped.
struct AdamConfig : OptimizerConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const override;
};

struct AdamWConfig final : AdamConfig {
  std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const override;
};

}  // namespace brim::optim
