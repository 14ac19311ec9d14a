// The way from the model to the operators, and their gradient.
#include "framework/nn/fused/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "framework/nn/fused/batch_norm_cpu.h"
#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "batch_norm(Tensor x, Tensor? residual, Tensor weight, Tensor bias, Tensor(a!) running_mean, "
      "Tensor(b!) running_var, float momentum, float eps, bool relu) -> (Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_backward(Tensor gradient, Tensor? more, Tensor x, Tensor? y, Tensor weight, "
      "Tensor bias, Tensor mean, Tensor inverse_std, bool relu, bool has_residual) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  library.def("batch_norm_moments(Tensor x) -> Tensor");
  library.def(
      "batch_norm_backward_sums(Tensor gradient, Tensor x, Tensor? y, Tensor weight, Tensor bias, "
      "Tensor mean, Tensor inverse_std, bool relu) -> (Tensor, Tensor)");
  library.def(
      "batch_norm_backward_apply(Tensor gradient, Tensor x, Tensor weight, Tensor mean, "
      "Tensor inverse_std, Tensor slopes) -> Tensor");
  library.def(
      "batch_norm_apply(Tensor x, Tensor? residual, Tensor weight, Tensor bias, Tensor mean, "
      "Tensor inverse_std, bool relu) -> Tensor");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("batch_norm", cpu::batch_norm);
  library.impl("batch_norm_backward", cpu::batch_norm_backward);
  library.impl("batch_norm_apply", cpu::batch_norm_apply);
  library.impl("batch_norm_moments", cpu::batch_norm_moments);
  library.impl("batch_norm_backward_sums", cpu::batch_norm_backward_sums);
  library.impl("batch_norm_backward_apply", cpu::batch_norm_backward_apply);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_shapes(
    const at::Tensor& x, const MaybeTensor& /*residual*/, const at::Tensor& /*weight*/,
    const at::Tensor& /*bias*/, at::Tensor& running_mean, at::Tensor& /*running_var*/,
    double /*momentum*/, double /*eps*/, bool /*relu*/) {
  return {at::empty_like(x, at::MemoryFormat::ChannelsLast), at::empty_like(running_mean),
          at::empty_like(running_mean)};
}

at::Tensor batch_norm_apply_shape(const at::Tensor& x, const MaybeTensor& /*residual*/,
                                  const at::Tensor& /*weight*/, const at::Tensor& /*bias*/,
                                  const at::Tensor& /*mean*/, const at::Tensor& /*inverse_std*/,
                                  bool /*relu*/) {
  return at::empty_like(x, at::MemoryFormat::ChannelsLast);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_shapes(
    const at::Tensor& /*gradient*/, const MaybeTensor& /*more*/, const at::Tensor& x,
    const MaybeTensor& /*y*/, const at::Tensor& /*weight*/, const at::Tensor& /*bias*/,
    const at::Tensor& mean, const at::Tensor& /*inverse_std*/, bool /*relu*/, bool has_residual) {
  const auto format = at::MemoryFormat::ChannelsLast;
  return {at::empty_like(x, format), has_residual ? at::empty_like(x, format) : at::Tensor(),
          at::empty_like(mean), at::empty_like(mean)};
}

at::Tensor moments_shape(const at::Tensor& x) {
  return at::empty({2, x.size(1)}, x.options().dtype(at::kDouble));
}

std::tuple<at::Tensor, at::Tensor> backward_sums_shapes(
    const at::Tensor& /*gradient*/, const at::Tensor& x, const MaybeTensor& /*y*/,
    const at::Tensor& /*weight*/, const at::Tensor& /*bias*/, const at::Tensor& /*mean*/,
    const at::Tensor& /*inverse_std*/, bool relu) {
  return {moments_shape(x),
          relu ? at::empty_like(x, at::MemoryFormat::ChannelsLast) : at::Tensor()};
}

at::Tensor backward_apply_shape(const at::Tensor& /*gradient*/, const at::Tensor& x,
                                const at::Tensor& /*weight*/, const at::Tensor& /*mean*/,
                                const at::Tensor& /*inverse_std*/, const at::Tensor& /*slopes*/) {
  return at::empty_like(x, at::MemoryFormat::ChannelsLast);
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("batch_norm_moments", moments_shape);
  library.impl("batch_norm_backward_sums", backward_sums_shapes);
  library.impl("batch_norm_backward_apply", backward_apply_shape);
  library.impl("batch_norm", batch_norm_shapes);
  library.impl("batch_norm_backward", batch_norm_backward_shapes);
  library.impl("batch_norm_apply", batch_norm_apply_shape);
}

using BatchNormForward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const MaybeTensor&, const at::Tensor&, const at::Tensor&, at::Tensor&,
    at::Tensor&, double, double, bool);
using BatchNormBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const MaybeTensor&, const at::Tensor&, const MaybeTensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, bool);
using Apply = at::Tensor(const at::Tensor&, const MaybeTensor&, const at::Tensor&,
                         const at::Tensor&, const at::Tensor&, const at::Tensor&, bool);

const c10::TypedOperatorHandle<BatchNormForward>& forward_operator() {
  static const auto operation = find_operator<BatchNormForward>("brim::batch_norm");
  return operation;
}

const c10::TypedOperatorHandle<BatchNormBackward>& backward_operator() {
  static const auto operation = find_operator<BatchNormBackward>("brim::batch_norm_backward");
  return operation;
}

const c10::TypedOperatorHandle<Apply>& apply_operator() {
  static const auto operation = find_operator<Apply>("brim::batch_norm_apply");
  return operation;
}

/// What a reader of a norm's result has left for the norm's backward pass.
struct LeftGradient : torch::CustomClassHolder {
  at::Tensor gradient;
};

class FusedBatchNorm : public Function<FusedBatchNorm> {
 public:
  /// The norm whose result y is; null where it is another operator's.
  static torch::autograd::CppNode<FusedBatchNorm>* of(const at::Tensor& y) {
    return dynamic_cast<torch::autograd::CppNode<FusedBatchNorm>*>(y.grad_fn().get());
  }
  static c10::intrusive_ptr<LeftGradient> left(const AutogradContext& context) {
    return c10::static_intrusive_pointer_cast<LeftGradient>(
        context.saved_data.at("left").toCapsule());
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const MaybeTensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, at::Tensor running_mean, at::Tensor running_var,
                            double momentum, double eps, bool relu) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [y, mean, inverse_std] = forward_operator().call(x, residual, weight, bias, running_mean,
                                                          running_var, momentum, eps, relu);
    const bool has_residual = residual.has_value();
    context->save_for_backward(
        {x, relu && has_residual ? y : at::Tensor(), weight, bias, mean, inverse_std});
    context->saved_data["relu"] = relu;
    context->saved_data["has_residual"] = has_residual;
    context->saved_data["left"] = c10::IValue::make_capsule(c10::make_intrusive<LeftGradient>());
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("batch norm");
    const auto saved = context->get_saved_variables();
    const auto like_x = [&](const at::Tensor& gradient) {
      return gradient.to(saved[0].scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
    };
    at::Tensor more = std::exchange(left(*context)->gradient, {});
    if (more.defined()) more = like_x(more);
    const bool has_residual = context->saved_data["has_residual"].toBool();
    auto [x_gradient, residual_gradient, weight_gradient, bias_gradient] = backward_operator().call(
        like_x(gradients[0]), maybe(more), saved[0], maybe(saved[1]), saved[2], saved[3], saved[4],
        saved[5], context->saved_data["relu"].toBool(), has_residual);
    return {x_gradient,
            has_residual ? residual_gradient : at::Tensor(),
            weight_gradient,
            bias_gradient,
            {},
            {},
            {},
            {},
            {}};
  }
};

class OtherReader : public Function<OtherReader> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y,
                            const c10::intrusive_ptr<LeftGradient>& left) {
    context->set_materialize_grads(false);
    context->saved_data["left"] = c10::IValue::make_capsule(left);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("batch norm");
    const auto left = FusedBatchNorm::left(*context);
    if (gradients[0].defined()) {
      left->gradient = left->gradient.defined() ? left->gradient + gradients[0] : gradients[0];
    }
    return {{}, {}};
  }
};

}  // namespace

bool has_fused_batch_norm(const at::Tensor& x, const at::Tensor& residual,
                          const BatchNormState& state) {
  if (x.dim() != 4 || x.numel() == 0 || !has_fused_kernels(x)) return false;
  if (!x.is_contiguous(at::MemoryFormat::ChannelsLast)) return false;
  if (residual.defined() && (residual.scalar_type() != x.scalar_type() ||
                             residual.sizes() != x.sizes() || residual.device() != x.device())) {
    return false;
  }
  const at::ScalarType type = opmath_type(x);
  for (const at::Tensor* t :
       {&state.weight, &state.bias, &state.running_mean, &state.running_var}) {
    if (!t->defined() || t->scalar_type() != type || t->device() != x.device()) return false;
  }
  return true;
}

at::Tensor fused_batch_norm(const at::Tensor& x, const at::Tensor& residual,
                            const BatchNormState& state, double momentum, bool relu) {
  return FusedBatchNorm::apply(x, maybe(residual), state.weight, state.bias, state.running_mean,
                               state.running_var, momentum, state.eps, relu);
}

at::Tensor for_other_reader(const at::Tensor& y) {
  const auto* norm = at::GradMode::is_enabled() ? FusedBatchNorm::of(y) : nullptr;
  return norm == nullptr ? y : OtherReader::apply(y, FusedBatchNorm::left(norm->ctx_));
}

at::Tensor fused_batch_norm_inference(const at::Tensor& x, const at::Tensor& residual,
                                      const BatchNormState& state, bool relu) {
  const at::Tensor inverse_std = (state.running_var + state.eps).rsqrt();
  return apply_operator().call(x, maybe(residual), state.weight, state.bias, state.running_mean,
                               inverse_std, relu);
}

NormedBatch norm_batch(const at::Tensor& x, const BatchNormState& state, double momentum) {
  at::Tensor running_mean = state.running_mean, running_var = state.running_var;
  auto [y, mean, inverse_std] =
      forward_operator().call(x, std::nullopt, state.weight, state.bias, running_mean, running_var,
                              momentum, state.eps, /*relu=*/true);
  return {y, {mean, inverse_std}};
}

at::Tensor norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const NormMoments& moments) {
  return norm_by(x, {}, weight, bias, moments, /*relu=*/true);
}

at::Tensor norm_by(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                   const at::Tensor& bias, const NormMoments& moments, bool relu) {
  return apply_operator().call(x, maybe(residual), weight, bias, moments.mean, moments.inverse_std,
                               relu);
}

at::Tensor own_moments(const at::Tensor& x) {
  static const auto operation =
      find_operator<at::Tensor(const at::Tensor&)>("brim::batch_norm_moments");
  return operation.call(x);
}

NormSums own_gradient_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const NormMoments& moments, bool relu) {
  using Sums = std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const MaybeTensor&, const at::Tensor&,
      const at::Tensor&, const at::Tensor&, const at::Tensor&, bool);
  static const auto operation = find_operator<Sums>("brim::batch_norm_backward_sums");
  const at::Tensor dense = gradient.to(x.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
  auto [sums, masked] =
      operation.call(dense, x, maybe(y), weight, bias, moments.mean, moments.inverse_std, relu);
  return {sums, relu ? masked : dense};
}

at::Tensor norm_input_gradient(const at::Tensor& masked, const at::Tensor& x,
                               const at::Tensor& weight, const NormMoments& moments,
                               const at::Tensor& slopes) {
  using Gradient = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, const at::Tensor&, const at::Tensor&);
  static const auto operation = find_operator<Gradient>("brim::batch_norm_backward_apply");
  return operation.call(masked, x, weight, moments.mean, moments.inverse_std, slopes);
}

NormGradients norm_gradients(const at::Tensor& gradient, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& bias,
                             const NormMoments& moments) {
  auto [x_gradient, none, weight_gradient, bias_gradient] = backward_operator().call(
      gradient.contiguous(at::MemoryFormat::ChannelsLast), std::nullopt, x, std::nullopt, weight,
      bias, moments.mean, moments.inverse_std, /*relu=*/true, /*has_residual=*/false);
  return {x_gradient, weight_gradient, bias_gradient};
}

}  // namespace brim::nn
