// The way from the models to the operators, and their gradient.
#include "framework/nn/fused/layer_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "framework/nn/fused/layer_norm_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "layer_norm(Tensor x, Tensor? branch, Tensor weight, Tensor bias, float eps, "
      "ScalarType type) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_backward(Tensor gradient, Tensor? sum_gradient, Tensor sum, Tensor mean, "
      "Tensor inverse_std, Tensor weight, bool has_branch) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("layer_norm", cpu::layer_norm);
  library.impl("layer_norm_backward", cpu::layer_norm_backward);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm_shapes(
    const at::Tensor& x, const MaybeTensor& branch, const at::Tensor& weight,
    const at::Tensor& /*bias*/, double /*eps*/, at::ScalarType type) {
  const std::vector<int64_t> rows = {x.numel() / x.size(-1)};
  return {branch ? at::empty_like(x) : at::Tensor(), at::empty(x.sizes(), x.options().dtype(type)),
          at::empty(rows, weight.options()), at::empty(rows, weight.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm_backward_shapes(
    const at::Tensor& gradient, const MaybeTensor& /*sum_gradient*/, const at::Tensor& sum,
    const at::Tensor& /*mean*/, const at::Tensor& /*inverse_std*/, const at::Tensor& weight,
    bool has_branch) {
  const bool has_own = has_branch && gradient.scalar_type() != sum.scalar_type();
  return {at::empty_like(sum), has_own ? at::empty_like(gradient) : at::Tensor(),
          at::empty_like(weight), at::empty_like(weight)};
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("layer_norm", layer_norm_shapes);
  library.impl("layer_norm_backward", layer_norm_backward_shapes);
}

using LayerNormForward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const MaybeTensor&, const at::Tensor&, const at::Tensor&, double,
    at::ScalarType);
using LayerNormBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const MaybeTensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, bool);

class FusedLayerNorm : public Function<FusedLayerNorm> {
 public:
  /// The norm, then, where there is a branch, the sum.
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const MaybeTensor& branch, const at::Tensor& weight,
                               const at::Tensor& bias, double eps, at::ScalarType type) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto operation = find_operator<LayerNormForward>("brim::layer_norm");
    const at::Tensor dense = x.contiguous();
    const bool has_branch = branch.has_value();
    auto [sum, norm, mean, inverse_std] =
        operation.call(dense, has_branch ? MaybeTensor(branch->contiguous()) : std::nullopt, weight,
                       bias, eps, type);
    context->save_for_backward({has_branch ? sum : dense, mean, inverse_std, weight});
    context->saved_data["has_branch"] = has_branch;
    context->saved_data["type"] = static_cast<int64_t>(type);
    context->set_materialize_grads(false);
    return has_branch ? variable_list{norm, sum} : variable_list{norm};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("layer norm");
    const auto saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const bool has_branch = context->saved_data["has_branch"].toBool();
    const auto dense = [](const at::Tensor& gradient, at::ScalarType of) {
      return gradient.to(of).contiguous();
    };
    const at::Tensor gradient = gradients[0].defined()
                                    ? dense(gradients[0], type)
                                    : at::zeros(sum.sizes(), sum.options().dtype(type));
    MaybeTensor sum_gradient;
    if (has_branch && gradients[1].defined()) {
      sum_gradient = dense(gradients[1], sum.scalar_type());
    }
    static const auto operation = find_operator<LayerNormBackward>("brim::layer_norm_backward");
    auto [x_gradient, branch_gradient, weight_gradient, bias_gradient] =
        operation.call(gradient, sum_gradient, sum, saved[1], saved[2], saved[3], has_branch);
    if (has_branch && !branch_gradient.defined()) branch_gradient = x_gradient;
    return {x_gradient, branch_gradient, weight_gradient, bias_gradient, {}, {}};
  }
};

at::Tensor plain_layer_norm(const at::Tensor& x, const LayerNormState& state) {
  return at::layer_norm(x, {x.size(-1)}, state.weight, state.bias, state.eps);
}

AddedNorm plain_add_layer_norm(const at::Tensor& x, const at::Tensor& branch,
                               const LayerNormState& state) {
  const at::Tensor sum = branch.defined() ? x + branch : x;
  return {sum, plain_layer_norm(sum, state)};
}

bool takes_fused_norm(const at::Tensor& x, const at::Tensor& branch, const LayerNormState& state,
                      Fused when, bool is_training) {
  const at::ScalarType type = type_of_product(x);
  if (when == Fused::kNever || !has_fused_layer_norm(x, branch, state, type)) return false;
  const auto results = [&](const AddedNorm& y) -> variable_list {
    const at::Tensor norm = y.norm.to(type);  // as the product behind it reads it
    return branch.defined() ? variable_list{norm, y.sum} : variable_list{norm};
  };
  return takes_fused(
      when,
      {.name = branch.defined() ? "add, layer norm" : "layer norm",
       .batch = {x, branch},
       .parameters = {state.weight, state.bias},
       .is_training = is_training},
      [&](const auto& in, const auto& of) {
        return results(fused_layer_norm(in[0], in[1], {of[0], of[1], state.eps}, type));
      },
      [&](const auto& in, const auto& of) {
        return results(plain_add_layer_norm(in[0], in[1], {of[0], of[1], state.eps}));
      });
}

}  // namespace

bool has_fused_layer_norm(const at::Tensor& x, const at::Tensor& branch,
                          const LayerNormState& state, at::ScalarType type) {
  if (x.dim() == 0 || x.numel() == 0 || !has_fused_kernels(x)) return false;
  const bool is_lowered = x.scalar_type() == at::kFloat &&
                          (type == at::kBFloat16 || (type == at::kHalf && x.is_cuda()));
  if (type != x.scalar_type() && !is_lowered) return false;
  if (branch.defined() && (branch.sizes() != x.sizes() || branch.scalar_type() != type ||
                           branch.device() != x.device())) {
    return false;
  }
  for (const at::Tensor* t : {&state.weight, &state.bias}) {
    if (!t->defined() || t->dim() != 1 || t->size(0) != x.size(-1) || !t->is_contiguous() ||
        t->scalar_type() != opmath_type(x) || t->device() != x.device()) {
      return false;
    }
  }
  return true;
}

AddedNorm fused_layer_norm(const at::Tensor& x, const at::Tensor& branch,
                           const LayerNormState& state, at::ScalarType type) {
  const variable_list results =
      FusedLayerNorm::apply(x, maybe(branch), state.weight, state.bias, state.eps, type);
  return {branch.defined() ? results[1] : x, results[0]};
}

at::Tensor layer_norm(const at::Tensor& x, const LayerNormState& state, Fused when,
                      bool is_training) {
  if (takes_fused_norm(x, {}, state, when, is_training)) {
    return fused_layer_norm(x, {}, state, type_of_product(x)).norm;
  }
  return plain_layer_norm(x, state);
}

AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& branch, const LayerNormState& state,
                         Fused when, bool is_training) {
  if (takes_fused_norm(x, branch, state, when, is_training)) {
    return fused_layer_norm(x, branch, state, type_of_product(x));
  }
  return plain_add_layer_norm(x, branch, state);
}

}  // namespace brim::nn
