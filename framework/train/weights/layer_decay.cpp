#include "framework/train/weights/layer_decay.h"

#include <cmath>

#include "framework/base/error.h"
#include "framework/nn/layers.h"
#include "framework/optim/parameter_groups.h"

namespace brim::train {

std::vector<optim::ParameterGroup> decay_by_layer(const std::vector<optim::ParameterGroup>& groups,
                                                  const nn::Model& model, double decay) {
  const nn::Layers layers = nn::layers_of(model);
  if (layers.count == 0) {
    throw Error(Exit::kRecipe,
                "[optimizer] layer_decay = {} needs a model made of blocks, one after the other; "
                "this one has none: leave layer_decay at 1",
                decay);
  }
  return optim::split_by_rate(groups, [&](const std::string& parameter) {
    const int64_t after = layers.count + 1 - layers.depth.at(parameter);
    return std::pow(decay, static_cast<double>(after));
  });
}

}  // namespace brim::train
