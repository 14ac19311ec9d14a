// LARS: momentum SGD with a rate for each parameter (You et al., "Large Batch Training of
// Convolutional Networks", 2017, algorithm 1), by foreach operations. As there, the learning rate
// is inside the momentum.
#pragma once

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// Groups without weight decay take plain momentum steps. State: "momentum.<parameter>".
struct LarsConfig : OptimizerConfig {
  double momentum = 0.9;
  double eta = 0.001;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const override;
  bool is_element_wise() const override { return false; }  // norms of whole parameters
};

}  // namespace brim::optim
