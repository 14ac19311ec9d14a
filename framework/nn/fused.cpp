#include "framework/nn/fused.h"

namespace brim::nn {

int64_t use_fused(torch::nn::Module& module, Fused when) {
  int64_t count = 0;
  const auto set = [&](torch::nn::Module& one) {
    if (auto* fusable = dynamic_cast<Fusable*>(&one)) {
      fusable->use_fused(when);
      ++count;
    }
  };
  set(module);
  for (const auto& inside : module.modules(/*include_self=*/false)) set(*inside);
  return count;
}

}  // namespace brim::nn
