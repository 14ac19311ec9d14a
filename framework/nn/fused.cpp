#include "framework/nn/fused.h"

namespace brim::nn {

int64_t use_fused(torch::nn::Module& module, bool on) {
  int64_t count = 0;
  const auto use = [&](torch::nn::Module* inside) {
    auto* fusable = dynamic_cast<Fusable*>(inside);
    if (fusable == nullptr) return;
    fusable->use_fused(on);
    ++count;
  };
  use(&module);  // which need not be in a shared_ptr
  for (const auto& inside : module.modules(/*include_self=*/false)) use(inside.get());
  return count;
}

}  // namespace brim::nn
