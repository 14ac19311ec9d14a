#include "framework/optim/parameter_groups.h"

#include <algorithm>

namespace brim::optim {

std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, double weight_decay) {
  ParameterGroup decayed{.parameters = {}, .weight_decay = weight_decay, .rate_scale = 1.0};
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

std::vector<ParameterGroup> split_by_rate(
    const std::vector<ParameterGroup>& groups,
    const std::function<double(const std::string& parameter)>& scale_of) {
  std::vector<ParameterGroup> result;
  for (const ParameterGroup& group : groups) {
    const size_t first = result.size();
    for (const auto& item : group.parameters) {
      const double scale = group.rate_scale * scale_of(item.first);
      const auto same = [scale](const ParameterGroup& other) { return other.rate_scale == scale; };
      auto found = std::find_if(result.begin() + static_cast<ptrdiff_t>(first), result.end(), same);
      if (found == result.end()) {
        found = result.insert(
            found, {.parameters = {}, .weight_decay = group.weight_decay, .rate_scale = scale});
      }
      found->parameters.push_back(item);
    }
  }
  return result;
}

}  // namespace brim::optim
