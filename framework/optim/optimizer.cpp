#include "framework/optim/optimizer.h"

namespace brim::optim {

void Optimizer::zero_grad() {
  for (auto& group : groups_) {
    for (auto& [name, parameter] : group.parameters) parameter.mutable_grad().reset();
  }
}

void Optimizer::gather_state(StateWriter* into) {
  if (into == nullptr) return;
  const State own = state();
  into->begin(own);
  for (const auto& [name, tensor] : own) into->write(name, 0, tensor.detach().cpu().contiguous());
}

}  // namespace brim::optim
