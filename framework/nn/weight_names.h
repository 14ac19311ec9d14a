// How other packages name a model's weights, so that files go both ways. A model's folder states
// the rules (ModelConfig::weight_names()); loading and exporting apply them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace brim::nn {

/// One pattern on each side: '#' stands for a number, and '*', at the end, for the rest of a name.
/// Both sides have the same of these in the same order.
struct NameRule {
  std::string ours;
  std::string theirs;
  bool is_flat_there = false;  // their tensor is ours without its dimensions of size 1
};

/// The names that one package gives.
struct WeightNames {
  std::string package;          // "torchvision", "timm" or "hf"
  std::vector<NameRule> rules;  // none: it names them as we do
};

/// A name on the other side, and the rule that gave it.
struct Renamed {
  std::string name;
  const NameRule* rule = nullptr;
};

/// By the first rule whose pattern fits; nullopt where none does.
std::optional<Renamed> to_theirs(std::string_view name, const std::vector<NameRule>& rules);
std::optional<Renamed> to_ours(std::string_view name, const std::vector<NameRule>& rules);

}  // namespace brim::nn
