#include "framework/optim/parameter_groups.h"

namespace brim::optim {

std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, double weight_decay) {
  ParameterGroup decayed{.parameters = {}, .weight_decay = weight_decay};
  ParameterGroup plain;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    const bool decays = weight_decay == 0 || parameter.dim() >= 2;
    (decays ? decayed : plain).parameters.emplace_back(name, parameter);
  }
  std::vector<ParameterGroup> groups;
  if (!decayed.parameters.empty()) groups.push_back(std::move(decayed));
  if (!plain.parameters.empty()) groups.push_back(std::move(plain));
  return groups;
}

}  // namespace brim::optim
