#include "framework/optim/lars.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "framework/optim/foreach_groups.h"

namespace brim::optim {
namespace {

class Lars final : public Optimizer {
 public:
  Lars(const LarsConfig& config, std::vector<ParameterGroup> groups)
      : Optimizer(std::move(groups)), config_(config), momentum_(StateList::zeros_like(groups_)) {}

  void step(double learning_rate, const StepScale& scale) override {
    const at::NoGradGuard no_grad;
    for (const auto& batch : foreach_groups(groups_))
      update(batch, learning_rate * batch.rate_scale, scale);
  }

  State state() override {
    State state;
    momentum_.describe("momentum", groups_, state);
    return state;
  }

 private:
  /// eta |w| / (|g| + decay |w|) for each parameter, 1 where either norm is zero; shape [n].
  at::Tensor local_rates(const Batch& batch) const {
    const at::Tensor sizes = at::stack(at::_foreach_norm(batch.parameters));
    const at::Tensor slopes = at::stack(at::_foreach_norm(batch.gradients));
    const at::Tensor defined = sizes.gt(0).logical_and(slopes.gt(0));
    const at::Tensor rates = config_.eta * sizes / (slopes + batch.weight_decay * sizes);
    return at::where(defined, rates, 1.0);
  }

  /// In a skipped step the gradients are zeros and `counts` is zero, which leaves all as it was.
  void update(const Batch& batch, double learning_rate, const StepScale& scale) const {
    const at::Tensor counts = apply_scale(batch, scale);
    const auto momentum = momentum_.of(batch);
    std::vector<at::Tensor> updates;
    if (batch.weight_decay > 0) {
      updates = at::_foreach_add(batch.gradients, batch.parameters, batch.weight_decay);
      at::_foreach_mul_(updates, (local_rates(batch) * learning_rate * counts).unbind());
    } else {
      updates = at::_foreach_mul(batch.gradients, learning_rate);
    }
    at::_foreach_mul_(momentum, 1 - (1 - config_.momentum) * counts);
    at::_foreach_add_(momentum, updates);
    at::_foreach_sub_(batch.parameters, at::_foreach_mul(momentum, counts));
  }

  LarsConfig config_;
  StateList momentum_;
};

}  // namespace

void LarsConfig::fields(recipe::Fields& f) {
  f.value("momentum", momentum, "share of the last update kept; 0 for none",
          recipe::between_open_high(0, 1));
  f.value(
      "eta", eta,
      "trust coefficient: how far a step may move a parameter that weight_decay applies to, as a "
      "share of its norm; without weight_decay none is scaled",
      recipe::above(0));
}

std::unique_ptr<Optimizer> LarsConfig::build(std::vector<ParameterGroup> groups) const {
  return std::make_unique<Lars>(*this, std::move(groups));
}

}  // namespace brim::optim
