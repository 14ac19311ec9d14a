#include "framework/nn/layers.h"

#include <algorithm>
#include <vector>

#include "framework/nn/block.h"

namespace brim::nn {
namespace {

/// Names of the outermost blocks, with a dot at their end.
std::vector<std::string> block_prefixes(const torch::nn::Module& model) {
  std::vector<std::string> prefixes;
  for (const auto& item :
       model.named_modules(/*name_prefix=*/std::string(), /*include_self=*/false)) {
    if (dynamic_cast<const Block*>(item.value().get()) == nullptr) continue;
    if (!prefixes.empty() && item.key().starts_with(prefixes.back())) continue;
    prefixes.push_back(item.key() + ".");
  }
  return prefixes;
}

}  // namespace

Layers layers_of(const torch::nn::Module& model) {
  const std::vector<std::string> blocks = block_prefixes(model);
  Layers layers{.count = static_cast<int64_t>(blocks.size()), .depth = {}};
  // What lies between two blocks waits for the name of the second.
  std::vector<std::string> between;
  int64_t depth = 0;
  const auto place = [&](int64_t at) {
    for (const std::string& name : between) layers.depth[name] = at;
    between.clear();
  };
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    const auto is_in = [&](int64_t block) {
      return name.starts_with(blocks[static_cast<size_t>(block - 1)]);
    };
    int64_t block = std::max<int64_t>(depth, 1);
    while (block <= layers.count && !is_in(block)) ++block;
    if (block > layers.count) {
      between.push_back(name);
      continue;
    }
    place(depth == 0 ? 0 : block);
    depth = block;
    layers.depth[name] = block;
  }
  place(layers.count + 1);
  return layers;
}

}  // namespace brim::nn
