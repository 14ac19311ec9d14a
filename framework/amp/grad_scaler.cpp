#include "framework/amp/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "framework/base/error.h"

namespace brim::amp {
namespace {

constexpr double kMaxScale = 1e38;  // it is a float32, and grows from there

}  // namespace

void GradScalerConfig::fields(recipe::Fields& f) {
  f.renamed("initial_scale", "init_scale");
  f.value("init_scale", init_scale, "factor on the loss in the first step",
          {.low = 0, .high = kMaxScale, .low_open = true});
  f.value("growth_factor", growth_factor, "factor on the scale after growth_interval good steps",
          recipe::above(1));
  f.value("backoff_factor", backoff_factor, "factor on the scale after a step with infinities",
          {.low = 0, .high = 1, .low_open = true, .high_open = true});
  f.value("growth_interval", growth_interval, "good steps in a row before the scale grows",
          recipe::at_least(1));
  f.renamed("minimum_scale", "min_scale");
  f.value("min_scale", min_scale, "the scale never falls under this",
          {.low = 0, .high = kMaxScale, .low_open = true});
}

void check_and_unscale(at::TensorList gradients, at::Tensor& found_inf,
                       const at::Tensor& inverse_scale) {
  // The kernel wants one dtype a call; a model has one or two.
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const auto& gradient : gradients) {
    if (gradient.layout() != at::kStrided) {
      throw Error(Exit::kRecipe, std::string("sparse gradients are not supported: expected dense "
                                             "ones. Leave out sparse = true of embeddings"));
    }
    by_dtype[gradient.scalar_type()].push_back(gradient);
  }
  for (const auto& [dtype, group] : by_dtype) {
    at::_amp_foreach_non_finite_check_and_unscale_(group, found_inf, inverse_scale);
  }
}

GradScaler::GradScaler(c10::Device device, const GradScalerConfig& config, bool enabled)
    : config_(config), enabled_(enabled) {
  if (!(config.init_scale >= config.min_scale)) {
    throw Error(Exit::kRecipe, "the initial loss scale {} is under the minimum scale {}",
                config.init_scale, config.min_scale);
  }
  if (!(config.growth_factor >= 1 && config.backoff_factor > 0 && config.backoff_factor <= 1 &&
        config.growth_interval >= 1)) {
    throw Error(
        Exit::kRecipe,
        "a gradient scaler: expected a growth_factor of at least 1, a backoff_factor above 0 "
        "and up to 1, and a growth_interval of at least 1, found {}, {} and {}",
        config.growth_factor, config.backoff_factor, config.growth_interval);
  }
  if (!enabled) return;
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  scale_ = at::full({}, config.init_scale, options);
  growth_tracker_ = at::zeros({}, options.dtype(at::kInt));
  found_inf_ = at::zeros({}, options);
  one_ = at::ones({}, options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return enabled_ ? loss * scale_ : loss;
}

/// As torch does it: the reciprocal in float64, because float32 division may be approximate.
at::Tensor GradScaler::inverse_scale() const {
  return scale_.to(at::kDouble).reciprocal().to(at::kFloat);
}

void GradScaler::unscale(at::TensorList gradients) {
  if (!enabled_) return;
  for (const at::Tensor& gradient : gradients) {
    if (unscaled_.insert(gradient.unsafeGetTensorImpl()).second) continue;
    throw Error(Exit::kBug, "a gradient was already unscaled in this step");
  }
  inspect(gradients, inverse_scale(), Stage::kUnscaled);
}

void GradScaler::check(at::TensorList gradients) {
  if (!enabled_) return;
  inspect(gradients, one_, Stage::kChecked);
}

void GradScaler::inspect(at::TensorList gradients, const at::Tensor& inverse_scale, Stage stage) {
  if (stage_ == Stage::kChecked || (stage_ == Stage::kUnscaled && stage == Stage::kChecked)) {
    throw Error(Exit::kBug, "the gradients of this step were already checked or unscaled");
  }
  const at::NoGradGuard no_grad;
  if (stage_ == Stage::kReady) found_inf_.zero_();
  check_and_unscale(gradients, found_inf_, inverse_scale);
  stage_ = stage;
}

std::optional<at::Tensor> GradScaler::scale_of_loss() const {
  if (!enabled_) return std::nullopt;
  return scale_;
}

std::optional<at::Tensor> GradScaler::grad_scale() const {
  if (stage_ != Stage::kChecked) return std::nullopt;
  return scale_;
}

std::optional<at::Tensor> GradScaler::found_inf() const {
  if (!enabled_) return std::nullopt;
  return found_inf_;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!enabled_) {
    optimizer.step();
    return true;
  }
  if (stage_ == Stage::kChecked) {
    throw Error(Exit::kBug, "the gradients of this step were checked, and are still scaled");
  }
  if (stepped_.contains(&optimizer)) {
    throw Error(Exit::kBug, "step() was already called for this optimizer since the last update()");
  }
  std::vector<at::Tensor> scaled;
  bool has_unscaled = false;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const bool is_scaled = unscaled_.insert(gradient.unsafeGetTensorImpl()).second;
      if (is_scaled) scaled.push_back(gradient);
      has_unscaled |= !is_scaled;
    }
  }
  if (scaled.empty() && !has_unscaled) {
    throw Error(
        Exit::kBug,
        "step(): none of this optimizer's parameters has a gradient; call backward() first");
  }
  stepped_.insert(&optimizer);
  at::Tensor found = at::zeros_like(found_inf_);
  {
    const at::NoGradGuard no_grad;
    check_and_unscale(scaled, found, inverse_scale());
    if (stage_ == Stage::kReady) found_inf_.zero_();
    stage_ = Stage::kUnscaled;
    if (has_unscaled) found = at::maximum(found, found_inf_);
    found_inf_.copy_(at::maximum(found, found_inf_));
  }
  if (found.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!enabled_) return;
  if (stage_ == Stage::kReady) {
    throw Error(Exit::kBug, "the gradients of this step were neither checked nor unscaled");
  }
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, config_.growth_factor,
                         config_.backoff_factor, config_.growth_interval);
  scale_.clamp_min_(config_.min_scale);
  stage_ = Stage::kReady;
  unscaled_.clear();
  stepped_.clear();
}

std::map<std::string, at::Tensor> GradScaler::state() {
  if (!enabled_) return {};
  return {{"grad_scaler.scale", scale_}, {"grad_scaler.growth_tracker", growth_tracker_}};
}

double GradScaler::read_scale() const { return enabled_ ? scale_.item<double>() : 1.0; }

}  // namespace brim::amp
