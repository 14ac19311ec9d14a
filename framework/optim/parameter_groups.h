// Which parameters decay: weights do, biases and the scales of norms don't; and which learn slower.
#pragma once

#include <functional>
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

/// Splits each group into those whose parameters have one scale of the learning rate, by name.
std::vector<ParameterGroup> split_by_rate(
    const std::vector<ParameterGroup>& groups,
    const std::function<double(const std::string& parameter)>& scale_of);

}  // namespace brim::optim
