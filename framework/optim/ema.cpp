#include "framework/optim/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>

#include "framework/base/error.h"

namespace brim::optim {
namespace {

constexpr size_t kGroupBytes = size_t{64} << 20;

}  // namespace

Ema::Ema(const Parameters& parameters, double decay) : decay_(decay) {
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    averages_.push_back(parameter.detach().clone());
    parameters_.push_back(parameter);
  }
}

void Ema::update(const std::optional<at::Tensor>& found_inf) {
  if (swapped_) throw Error(Exit::kBug, "the average was updated while it was swapped in");
  const at::NoGradGuard no_grad;
  if (averages_.empty()) return;  // of a stage without parameters
  if (!found_inf) {
    at::_foreach_lerp_(averages_, parameters_, 1 - decay_);
    return;
  }
  const at::Tensor weight = (1 - decay_) * found_inf->eq(0).to(at::kDouble);
  if (weight.is_cuda()) {
    update_in_groups(weight);
    return;
  }
  std::vector<at::Tensor> weights;
  for (const auto& average : averages_) weights.push_back(weight.to(average.scalar_type()));
  at::_foreach_lerp_(averages_, parameters_, weights);
}

/// On a GPU a weight for each tensor would be a kernel for each: instead the steps of some
/// parameters at a time, of one dtype and about kGroupBytes.
void Ema::update_in_groups(const at::Tensor& weight) {
  for (size_t first = 0, end = 0; first < averages_.size(); first = end) {
    const at::ScalarType type = averages_[first].scalar_type();
    size_t bytes = 0;
    for (; end < averages_.size() && averages_[end].scalar_type() == type && bytes < kGroupBytes;
         ++end) {
      bytes += averages_[end].nbytes();
    }
    const auto group = at::TensorList(averages_).slice(first, end - first);
    const auto steps =
        at::_foreach_sub(at::TensorList(parameters_).slice(first, end - first), group);
    at::_foreach_mul_(steps, weight.to(type));
    at::_foreach_add_(group, steps);
  }
}

State Ema::state() {
  State state;
  for (size_t i = 0; i < names_.size(); ++i) state["ema." + names_[i]] = averages_[i];
  return state;
}

void Ema::swap_data() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor live = parameters_[i].tensor_data();
    parameters_[i].set_data(averages_[i]);
    averages_[i] = live;
  }
  swapped_ = !swapped_;
}

Ema::Swap::Swap(Ema& ema) : ema_(ema) { ema_.swap_data(); }
Ema::Swap::~Swap() { ema_.swap_data(); }

}  // namespace brim::optim
