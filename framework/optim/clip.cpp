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
                          const std::function<void(at::Tensor&)>& add_up) {
  const at::NoGradGuard no_grad;
  if (gradients.empty()) return at::zeros({});
  at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  if (add_up) {
    at::Tensor squares = norm.square();
    add_up(squares);
    norm = squares.sqrt();
  }
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  at::_foreach_mul_(gradients, at::where(norm.isfinite(), factor, 1.0));
  return norm;
}

}  // namespace brim::optim
