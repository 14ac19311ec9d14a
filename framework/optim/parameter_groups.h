// Which parameters decay: weights do, biases and the scales of norms don't.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// Up to two groups, in the parameters' order: those of two or more dimensions with
/// `weight_decay`, the others without. Parameters that need no gradient are left out. One group
/// with all where weight_decay is 0.
std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, double weight_decay);

}  // namespace brim::optim
