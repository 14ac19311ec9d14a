#include "framework/optim/lamb.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "framework/optim/foreach_groups.h"

namespace brim::optim {
namespace {

/// Scales each update to the size of its parameter; leaves it where either is zero.
void apply_trust_ratio(at::TensorList parameters, at::TensorList updates) {
  const at::Tensor sizes = at::stack(at::_foreach_norm(parameters));
  const at::Tensor lengths = at::stack(at::_foreach_norm(updates));
  const at::Tensor defined = sizes.gt(0).logical_and(lengths.gt(0));
  at::_foreach_mul_(updates, at::where(defined, sizes / lengths, 1.0).unbind());
}

class Lamb final : public Optimizer {
 public:
  Lamb(const LambConfig& config, std::vector<ParameterGroup> groups)
      : Optimizer(std::move(groups)),
        config_(config),
        first_moment_(StateList::zeros_like(groups_)),
        second_moment_(StateList::zeros_like(groups_)) {
    for (const auto& group : groups_) {
      if (group.parameters.empty()) continue;
      const auto& parameter = group.parameters.front().second;
      step_ = at::zeros({}, parameter.options().dtype(at::kFloat));
    }
  }

  void step(double learning_rate, const StepScale& scale) override {
    const at::NoGradGuard no_grad;
    if (!step_.defined()) return;
    step_.add_(1);
    if (scale.found_inf) step_.sub_(*scale.found_inf);
    for (const auto& batch : foreach_groups(groups_))
      update(batch, learning_rate * batch.rate_scale, scale);
  }

  State state() override {
    State state;
    first_moment_.describe("first_moment", groups_, state);
    second_moment_.describe("second_moment", groups_, state);
    if (step_.defined()) state["step"] = step_;
    return state;
  }

 private:
  /// 1 - beta^step. A first step that is skipped must not divide by zero.
  at::Tensor correction(double beta, at::ScalarType dtype) const {
    return (1 - at::pow(beta, step_.clamp_min(1).to(at::kDouble))).to(dtype);
  }

  /// In a skipped step the gradients are zeros and `counts` is zero, which leaves all as it was.
  void update(const Batch& batch, double learning_rate, const StepScale& scale) const {
    const at::Tensor counts = apply_scale(batch, scale);
    const auto first = first_moment_.of(batch);
    const auto second = second_moment_.of(batch);
    at::_foreach_mul_(first, 1 - (1 - config_.beta1) * counts);
    at::_foreach_add_(first, batch.gradients, 1 - config_.beta1);
    at::_foreach_mul_(second, 1 - (1 - config_.beta2) * counts);
    at::_foreach_addcmul_(second, batch.gradients, batch.gradients, 1 - config_.beta2);

    const auto dtype = counts.scalar_type();
    auto updates = at::_foreach_div(first, correction(config_.beta1, dtype));
    auto denominators = at::_foreach_div(second, correction(config_.beta2, dtype));
    at::_foreach_sqrt_(denominators);
    at::_foreach_add_(denominators, config_.epsilon);
    at::_foreach_div_(updates, denominators);
    if (batch.weight_decay > 0) {
      at::_foreach_add_(updates, batch.parameters, batch.weight_decay);
      apply_trust_ratio(batch.parameters, updates);
    }
    at::_foreach_mul_(updates, learning_rate * counts);
    at::_foreach_sub_(batch.parameters, updates);
  }

  LambConfig config_;
  StateList first_moment_;
  StateList second_moment_;
  at::Tensor step_;
};

}  // namespace

void LambConfig::fields(recipe::Fields& f) {
  f.value("beta1", beta1, "decay of the gradient's running mean", recipe::between_open_high(0, 1));
  f.value("beta2", beta2, "decay of the squared gradient's running mean",
          recipe::between_open_high(0, 1));
  f.value("epsilon", epsilon, "added to the denominator", recipe::above(0));
}

std::unique_ptr<Optimizer> LambConfig::build(std::vector<ParameterGroup> groups) const {
  return std::make_unique<Lamb>(*this, std::move(groups));
}

}  // namespace brim::optim
