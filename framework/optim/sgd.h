// Stochastic gradient descent with momentum, by LibTorch's fused kernel. Dampening is 0; weight
// decay is added to the gradient (L2), as in torch.optim.SGD.
#pragma once

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// State: "momentum.<parameter>" where momentum is above 0.
struct SgdConfig : OptimizerConfig {
  double momentum = 0.9;
  bool nesterov = false;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const override;
};

}  // namespace brim::optim
