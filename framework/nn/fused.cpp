#include "framework/nn/fused.h"

namespace brim::nn {

int64_t use_fused(torch::nn::Module& module, bool on) {
  int64_t count = 0;
  for (const auto& inside : module.modules()) {
    if (auto* fusable = dynamic_cast<Fusable*>(inside.get())) {
      fusable->use_fused(on);
      ++count;
    }
  }
  return count;
}

}  // namespace brim::nn
