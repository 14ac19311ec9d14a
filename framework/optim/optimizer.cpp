#include "framework/optim/optimizer.h"

namespace brim::optim {

void Optimizer::zero_grad() {
  for (auto& group : groups_) {
    for (auto& [name, parameter] : group.parameters) parameter.mutable_grad().reset();
  }
}

}  // namespace brim::optim
