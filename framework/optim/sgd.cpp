#include "framework/optim/sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>

#include "framework/optim/foreach_groups.h"

namespace brim::optim {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdConfig& config, std::vector<ParameterGroup> groups)
      : Optimizer(std::move(groups)), config_(config) {
    if (config.momentum > 0) momentum_ = StateList::zeros_like(groups_);
  }

  void step(double learning_rate, const StepScale& scale) override {
    const at::NoGradGuard no_grad;
    for (const auto& batch : foreach_groups(groups_)) {
      const auto momentum = config_.momentum > 0 ? momentum_.of(batch) : std::vector<at::Tensor>();
      at::_fused_sgd_(
          batch.parameters, batch.gradients, momentum, batch.weight_decay, config_.momentum,
          learning_rate * batch.rate_scale, /*dampening=*/0.0, config_.nesterov,
          /*maximize=*/false, /*is_first_step=*/false, scale.grad_scale, scale.found_inf);
    }
  }

  State state() override {
    State state;
    if (config_.momentum > 0) momentum_.describe("momentum", groups_, state);
    return state;
  }

 private:
  SgdConfig config_;
  StateList momentum_;
};

}  // namespace

void SgdConfig::fields(recipe::Fields& f) {
  f.value("momentum", momentum, "share of the last update kept; 0 for none",
          recipe::between_open_high(0, 1));
  f.value("nesterov", nesterov, "look ahead by the momentum (Nesterov)");
}

std::unique_ptr<Optimizer> SgdConfig::build(std::vector<ParameterGroup> groups) const {
  if (nesterov && momentum == 0) {
    throw Error(Exit::kRecipe,
                "optimizer.nesterov needs a momentum above 0; set optimizer.momentum or leave "
                "nesterov out");
  }
  return std::make_unique<Sgd>(*this, std::move(groups));
}

}  // namespace brim::optim
