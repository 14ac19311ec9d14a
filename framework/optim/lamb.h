// LAMB: Adam's update, scaled for each parameter to the size of the parameter (You et al., "Large
// Batch Optimization for Deep Learning", ICLR 2020, algorithm 2), by foreach operations.
#pragma once

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// Groups without weight decay take Adam's update as it is. State: "first_moment.<parameter>",
/// "second_moment.<parameter>", and "step", a float32 scalar that counts the steps not
/// skipped.
struct LambConfig : OptimizerConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const override;
  bool is_element_wise() const override { return false; }  // norms of whole parameters
};

}  // namespace brim::optim
