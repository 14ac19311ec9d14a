// Layers that learn slower the nearer they are to the input, as suits a pretrained model (Clark et
// al., "ELECTRA", ICLR 2020; Bao et al., "BEiT", ICLR 2022).
#pragma once

#include <vector>

#include "framework/nn/model.h"
#include "framework/optim/optimizer.h"

namespace brim::train {

/// Splits the groups so that a parameter's rate is scaled by decay^(layers + 1 - its depth); see
/// nn/layers.h. Throws Error(kRecipe) where the model has no layers to go by.
std::vector<optim::ParameterGroup> decay_by_layer(const std::vector<optim::ParameterGroup>& groups,
                                                  const nn::Model& model, double decay);

}  // namespace brim::train
