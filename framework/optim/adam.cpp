#include "framework/optim/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "framework/optim/foreach_groups.h"

namespace brim::optim {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(const AdamConfig& config, bool decoupled, std::vector<ParameterGroup> groups)
      : Optimizer(std::move(groups)),
        config_(config),
        decoupled_(decoupled),
        first_moment_(StateList::zeros_like(groups_)),
        second_moment_(StateList::zeros_like(groups_)),
        steps_(StateList::counters(groups_)) {}

  void step(double learning_rate, const StepScale& scale) override {
    const at::NoGradGuard no_grad;
    for (const auto& batch : foreach_groups(groups_)) {
      const auto steps = steps_.of(batch);
      at::_foreach_add_(steps, 1);
      update(batch, steps, learning_rate * batch.rate_scale, scale);
      // The kernel skips by itself, but only we can take back the count.
      if (scale.found_inf) {
        at::_foreach_sub_(steps, std::vector<at::Tensor>(steps.size(), *scale.found_inf));
      }
    }
  }

  State state() override {
    State state;
    first_moment_.describe("first_moment", groups_, state);
    second_moment_.describe("second_moment", groups_, state);
    steps_.describe("step", groups_, state);
    return state;
  }

 private:
  void update(const Batch& batch, at::TensorList steps, double learning_rate,
              const StepScale& scale) const {
    const auto fused = [&](auto kernel) {
      kernel(batch.parameters, batch.gradients, first_moment_.of(batch), second_moment_.of(batch),
             /*max_exp_avg_sqs=*/at::TensorList(), steps, learning_rate, config_.beta1,
             config_.beta2, batch.weight_decay, config_.epsilon, /*amsgrad=*/false,
             /*maximize=*/false, scale.grad_scale, scale.found_inf);
    };
    if (decoupled_) {
      fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }

  AdamConfig config_;
  bool decoupled_;
  StateList first_moment_;
  StateList second_moment_;
  StateList steps_;
};

}  // namespace

void AdamConfig::fields(recipe::Fields& f) {
  f.value("beta1", beta1, "decay of the gradient's running mean", recipe::between_open_high(0, 1));
  f.value("beta2", beta2, "decay of the squared gradient's running mean",
          recipe::between_open_high(0, 1));
  f.value("epsilon", epsilon, "added to the denominator", recipe::above(0));
}

std::unique_ptr<Optimizer> AdamConfig::build(std::vector<ParameterGroup> groups) const {
  return std::make_unique<Adam>(*this, /*decoupled=*/false, std::move(groups));
}

std::unique_ptr<Optimizer> AdamWConfig::build(std::vector<ParameterGroup> groups) const {
  return std::make_unique<Adam>(*this, /*decoupled=*/true, std::move(groups));
}

}  // namespace brim::optim
