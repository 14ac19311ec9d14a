// How deep in a model a parameter lies, counted in its blocks (nn/block.h).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>

namespace brim::nn {

struct Layers {
  int64_t count = 0;                     // the model's blocks; 0: there are none to go by
  std::map<std::string, int64_t> depth;  // of each parameter, by name
};

/// In the order in which modules are registered: 0 for what comes before the first block, i for the
/// i-th block and what comes between it and the one before it, count + 1 for what follows the last.
Layers layers_of(const torch::nn::Module& model);

}  // namespace brim::nn
