#include "framework/nn/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/nn/block.h"
#include "framework/nn/fused/batch_norm.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// [C] to [1, C, 1, 1].
at::Tensor per_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

at::Tensor sum_per_channel(const at::Tensor& x) { return x.sum({0, 2, 3}); }

/// Statistics are summed as float64: squares would cancel in fewer digits.
struct Moments {
  at::Tensor mean;      // [C], float64
  at::Tensor variance;  // [C], float64, biased
  at::Tensor count;     // scalar: samples of a channel over all ranks
};

Moments moments_over_ranks(const at::Tensor& x, const SumOverRanks& sum, bool is_fused) {
  const int64_t channels = x.size(1);
  const at::Tensor own = at::zeros({2 * channels + 1}, x.options().dtype(at::kDouble));
  if (x.numel() > 0) {
    const int64_t values = x.numel() / channels;
    const auto n = static_cast<double>(values);
    at::Tensor mean, variance;
    if (is_fused) {
      const at::Tensor moments = own_moments(x);
      mean = moments[0];
      variance = moments[1];
    } else {
      const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
      std::tie(variance, mean) = at::var_mean(wide, at::IntArrayRef{0, 2, 3}, /*correction=*/0);
      mean = mean.to(at::kDouble);
    }
    own.slice(0, 0, channels).copy_(mean * n);
    own.slice(0, channels, 2 * channels).copy_((variance.to(at::kDouble) + mean.square()) * n);
    own[2 * channels].fill_(n);
  }
  sum(own);
  const at::Tensor count = own[2 * channels];
  const at::Tensor mean = own.slice(0, 0, channels) / count;
  const at::Tensor variance =
      (own.slice(0, channels, 2 * channels) / count - mean.square()).clamp_min(0);
  return {mean, variance, count};
}

struct Sum : torch::CustomClassHolder {
  explicit Sum(SumOverRanks sum) : function(std::move(sum)) {}
  SumOverRanks function;
};

/// y = (x - mean) / std · weight + bias with moments over all ranks. With g = dL/dy and x̂ the
/// normalised x: dL/dx = weight / std · (g - mean(g) - x̂ · mean(g · x̂)), both means over all
/// ranks' samples; dL/dweight and dL/dbias are this rank's part, which the sum of gradients adds
/// up.
class SyncBatchNorm : public Function<SyncBatchNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean,
                            const at::Tensor& inverse_std, const at::Tensor& count,
                            const SumOverRanks& sum) {
    const at::ScalarType type = weight.scalar_type();
    const at::Tensor scale = weight * inverse_std.to(type);
    const at::Tensor shift = bias - mean.to(type) * scale;
    context->save_for_backward({x, weight, mean.to(type), inverse_std.to(type), count});
    context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<Sum>(sum));
    return at::addcmul(per_channel(shift), x, per_channel(scale)).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse_std = saved[3];
    const auto sum =
        c10::static_intrusive_pointer_cast<Sum>(context->saved_data["sum"].toCapsule());
    const at::ScalarType type = weight.scalar_type();
    const at::Tensor gradient = gradients[0].to(type);
    const at::Tensor normal = (x.to(type) - per_channel(mean)) * per_channel(inverse_std);
    const at::Tensor bias_gradient = sum_per_channel(gradient);
    const at::Tensor weight_gradient = sum_per_channel(gradient * normal);

    const at::Tensor means = at::stack({bias_gradient, weight_gradient}).to(at::kDouble);
    sum->function(means);
    const at::Tensor shares = (means / saved[4]).to(type);
    const at::Tensor x_gradient =
        per_channel(weight * inverse_std) *
        (gradient - per_channel(shares[0]) - normal * per_channel(shares[1]));
    return {x_gradient.to(x.scalar_type()), weight_gradient, bias_gradient, {}, {}, {}, {}};
  }
};

/// The same in the passes over memory of fused_batch_norm(), with its residual and ReLU. What ranks
/// add up is the same: one without samples takes the form above.
class FusedSyncBatchNorm : public Function<FusedSyncBatchNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const MaybeTensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, const NormMoments& moments,
                            const at::Tensor& count, bool relu, const SumOverRanks& sum) {
    const ForwardPass pass;
    const at::Tensor y = norm_by(x, residual.value_or(at::Tensor()), weight, bias, moments, relu);
    const bool needs_y = relu && residual.has_value();
    context->save_for_backward(
        {x, needs_y ? y : at::Tensor(), weight, bias, moments.mean, moments.inverse_std, count});
    context->saved_data["relu"] = relu;
    context->saved_data["has_residual"] = residual.has_value();
    context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<Sum>(sum));
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("batch norm");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[2], &bias = saved[3];
    const NormMoments moments = {saved[4], saved[5]};
    const auto sum =
        c10::static_intrusive_pointer_cast<Sum>(context->saved_data["sum"].toCapsule());
    const at::ScalarType type = weight.scalar_type();
    const auto [sums, masked] = own_gradient_sums(gradients[0], x, saved[1], weight, bias, moments,
                                                  context->saved_data["relu"].toBool());
    sums[1].mul_(moments.inverse_std);  // of the product with the normalised x
    const at::Tensor own = sums.to(type, /*non_blocking=*/false, /*copy=*/true);
    sum->function(sums);
    const at::Tensor shares = sums / saved[6];
    const at::Tensor scale = (weight * moments.inverse_std).to(at::kDouble);
    const at::Tensor slopes =
        at::stack({scale * moments.inverse_std * shares[1], scale * shares[0]}).neg().to(type);
    return {norm_input_gradient(masked, x, weight, moments, slopes),
            context->saved_data["has_residual"].toBool() ? masked : at::Tensor(),
            own[1],
            own[0],
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

void BatchNorm2dImpl::require_two_values(const at::Tensor& x) const {
  if (!is_training() || sum_ || x.numel() != x.size(1)) return;
  throw Error(Exit::kRecipe,
              "a batch norm of {} channels sees one value of each, which it can't normalise: this "
              "micro-batch has one sample, whose image is one pixel there. Raise batch.micro to 2, "
              "take larger images, or set data.drop_last = true where only an epoch's last step is "
              "that short",
              x.size(1));
}

double BatchNorm2dImpl::count_batch() {
  num_batches_tracked += 1;
  if (options.momentum()) return *options.momentum();
  return 1.0 / num_batches_tracked.item<double>();  // waits for the device
}

bool BatchNorm2dImpl::takes_fused_form(const at::Tensor& x, const at::Tensor& residual,
                                       bool relu) const {
  if (!is_fused() || !has_fused_batch_norm(x, residual, state())) return false;
  const double eps = options.eps();
  const auto statistics = [](const at::Tensor& weight) {
    return std::pair(at::zeros_like(weight), at::ones_like(weight));
  };
  const TwoForms operation = {.name = residual.defined()
                                          ? relu ? "batch norm, add, ReLU" : "batch norm, add"
                                      : relu ? "batch norm, ReLU"
                                             : "batch norm",
                              .batch = {x, residual},
                              .parameters = {weight, bias},
                              .is_training = is_training()};
  return takes_fused(
      fused(), operation,
      [&](const auto& in, const auto& of) -> variable_list {
        const auto [mean, variance] = statistics(of[0]);
        return {fused_batch_norm(in[0], in[1], {of[0], of[1], mean, variance, eps}, 0.1, relu)};
      },
      [&](const auto& in, const auto& of) -> variable_list {
        const auto [mean, variance] = statistics(of[0]);
        at::Tensor y = at::batch_norm(in[0], of[0], of[1], mean, variance, /*training=*/true, 0.1,
                                      eps, at::globalContext().userEnabledCuDNN());
        if (in[1].defined()) y = y.add_(in[1]);
        return {relu ? y.relu_() : y};
      });
}

std::optional<double> BatchNorm2dImpl::begin_fused_pass(const at::Tensor& x,
                                                        const at::Tensor& residual, bool relu) {
  require_two_values(x);
  if (sum_ || !is_training() || !takes_fused_form(x, residual, relu)) return std::nullopt;
  // A block's second pass sees samples that the first one has counted.
  return is_recomputing() ? 0.0 : count_batch();
}

at::Tensor BatchNorm2dImpl::fused_forward(const at::Tensor& x, const at::Tensor& residual,
                                          bool relu) {
  // Not measured: other ranks would have to take part. It has fewer passes over memory.
  if (sum_ && is_training() && is_fused() && has_fused_batch_norm(x, residual, state())) {
    return synchronized(x, residual, relu, /*is_fused=*/true);
  }
  if (const auto momentum = begin_fused_pass(x, residual, relu)) {
    return fused_batch_norm(x, residual, state(), *momentum, relu);
  }
  const bool infers = !is_training() && !at::GradMode::is_enabled();
  if (!infers || !takes_fused_form(x, residual, relu)) return {};
  return fused_batch_norm_inference(x, residual, state(), relu);
}

at::Tensor BatchNorm2dImpl::forward(const at::Tensor& x) {
  const at::Tensor y = fused_forward(x, {}, /*relu=*/false);
  return y.defined() ? y : plain_forward(x);
}

at::Tensor BatchNorm2dImpl::forward_relu(const at::Tensor& x) {
  const at::Tensor y = fused_forward(x, {}, /*relu=*/true);
  return y.defined() ? y : plain_forward(x).relu_();
}

at::Tensor BatchNorm2dImpl::forward_add_relu(const at::Tensor& x, const at::Tensor& residual) {
  const at::Tensor y = fused_forward(x, residual, /*relu=*/true);
  return y.defined() ? y : plain_forward(x).add_(residual).relu_();
}

at::Tensor BatchNorm2dImpl::plain_forward(const at::Tensor& x) {
  const bool counts = !is_recomputing();
  if (!is_training() || (!sum_ && counts)) return torch::nn::BatchNorm2dImpl::forward(x);
  if (!sum_) {
    return at::batch_norm(x, weight, bias, {}, {}, /*training=*/true, /*momentum=*/0.0,
                          options.eps(), at::globalContext().userEnabledCuDNN());
  }
  return synchronized(x, {}, /*relu=*/false, /*is_fused=*/false);
}

at::Tensor BatchNorm2dImpl::synchronized(const at::Tensor& x, const at::Tensor& residual, bool relu,
                                         bool is_fused) {
  Moments moments;
  {
    const at::NoGradGuard no_grad;
    moments = moments_over_ranks(x, sum_, is_fused);
    if (!is_recomputing()) {
      const double share = count_batch();
      const at::Tensor unbiased =
          moments.variance * (moments.count / (moments.count - 1).clamp_min(1));
      running_mean.lerp_(moments.mean.to(running_mean.scalar_type()), share);
      running_var.lerp_(unbiased.to(running_var.scalar_type()), share);
    }
  }
  const at::Tensor inverse_std = (moments.variance + options.eps()).rsqrt();
  if (!is_fused) {
    return SyncBatchNorm::apply(x, weight, bias, moments.mean, inverse_std, moments.count, sum_);
  }
  const at::ScalarType type = weight.scalar_type();
  return FusedSyncBatchNorm::apply(x, maybe(residual), weight, bias,
                                   NormMoments{moments.mean.to(type), inverse_std.to(type)},
                                   moments.count, relu, sum_);
}

int64_t synchronize_batch_norms(torch::nn::Module& module, const SumOverRanks& sum) {
  int64_t count = 0;
  for (const auto& child : module.modules()) {
    if (auto* norm = child->as<BatchNorm2dImpl>()) {
      norm->synchronize(sum);
      ++count;
    }
  }
  return count;
}

}  // namespace brim::nn
