#include "framework/optim/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace brim::optim {

at::Tensor clip_grad_norm(at::TensorList gradients, double max_norm,
                          const std::function<void(at::Tensor&)>& add_up,
                          at::TensorList counted_elsewhere) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = gradients.empty()
                        ? at::zeros({})
                        : at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  if (add_up) {
    at::Tensor squares = norm.square();
    add_up(squares);
    norm = squares.sqrt();
  }
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  const at::Tensor scale = at::where(norm.isfinite(), factor, 1.0);
  for (const at::TensorList list : {gradients, counted_elsewhere}) {
    if (!list.empty()) at::_foreach_mul_(list, scale);
  }
  return norm;
}

}  // namespace brim::optim
