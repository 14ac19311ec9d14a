// The way from the tasks to the operators, and their gradient.
#include "framework/nn/fused/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "framework/nn/fused/cross_entropy_cpu.h"
#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "cross_entropy(Tensor logits, Tensor labels, Tensor? partner_labels, Tensor? label_shares, "
      "int ignore_index, float smoothing) -> (Tensor, Tensor, Tensor)");
  library.def(
      "cross_entropy_backward(Tensor gradient, Tensor logits, Tensor labels, "
      "Tensor? partner_labels, Tensor? label_shares, Tensor rows, Tensor share, int ignore_index, "
      "float smoothing) -> Tensor");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("cross_entropy", cpu::cross_entropy);
  library.impl("cross_entropy_backward", cpu::cross_entropy_backward);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_shapes(
    const at::Tensor& logits, const at::Tensor& /*labels*/, const MaybeTensor& /*partner_labels*/,
    const MaybeTensor& /*label_shares*/, int64_t /*ignore_index*/, double /*smoothing*/) {
  const auto wide = logits.options().dtype(opmath_type(logits));
  return {at::empty({}, wide), at::empty({2, logits.size(0)}, wide), at::empty({}, wide)};
}

at::Tensor cross_entropy_backward_shape(const at::Tensor& /*gradient*/, const at::Tensor& logits,
                                        const at::Tensor& /*labels*/,
                                        const MaybeTensor& /*partner_labels*/,
                                        const MaybeTensor& /*label_shares*/,
                                        const at::Tensor& /*rows*/, const at::Tensor& /*share*/,
                                        int64_t /*ignore_index*/, double /*smoothing*/) {
  return at::empty(logits.sizes(), logits.options());
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("cross_entropy", cross_entropy_shapes);
  library.impl("cross_entropy_backward", cross_entropy_backward_shape);
}

using CrossEntropyForward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const MaybeTensor&, const MaybeTensor&, int64_t, double);
using CrossEntropyBackward = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        const MaybeTensor&, const MaybeTensor&, const at::Tensor&,
                                        const at::Tensor&, int64_t, double);

class FusedCrossEntropy : public Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& labels, const MaybeTensor& partner_labels,
                            const MaybeTensor& label_shares, int64_t ignore_index,
                            double smoothing) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto operation = find_operator<CrossEntropyForward>("brim::cross_entropy");
    const at::Tensor rows_apart = logits.stride(1) == 1 ? logits : logits.contiguous();
    auto [loss, rows, share] =
        operation.call(rows_apart, labels, partner_labels, label_shares, ignore_index, smoothing);
    const at::Tensor none;
    context->save_for_backward({rows_apart, labels, partner_labels.value_or(none),
                                label_shares.value_or(none), rows, share});
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["smoothing"] = smoothing;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("cross-entropy");
    const auto saved = context->get_saved_variables();
    static const auto operation =
        find_operator<CrossEntropyBackward>("brim::cross_entropy_backward");
    const at::Tensor gradient = operation.call(
        gradients[0], saved[0], saved[1], maybe(saved[2]), maybe(saved[3]), saved[4], saved[5],
        context->saved_data["ignore_index"].toInt(), context->saved_data["smoothing"].toDouble());
    return {gradient, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool has_fused_cross_entropy(const at::Tensor& logits, const ClassTargets& targets) {
  if (logits.dim() != 2 || logits.numel() == 0 || !has_fused_kernels(logits)) return false;
  const auto fits = [&](const at::Tensor& values, at::ScalarType type) {
    return values.dim() == 1 && values.size(0) == logits.size(0) && values.scalar_type() == type &&
           values.device() == logits.device();
  };
  if (!fits(targets.labels, at::kLong)) return false;
  if (!targets.partner_labels.defined()) return true;
  return fits(targets.partner_labels, at::kLong) && targets.label_shares.defined() &&
         fits(targets.label_shares, at::kFloat);
}

at::Tensor fused_cross_entropy(const at::Tensor& logits, const ClassTargets& targets) {
  MaybeTensor partner_labels, label_shares;
  if (targets.partner_labels.defined()) {
    partner_labels = targets.partner_labels.contiguous();
    label_shares = targets.label_shares.contiguous();
  }
  return FusedCrossEntropy::apply(logits, targets.labels.contiguous(), partner_labels, label_shares,
                                  targets.ignore_index, targets.smoothing);
}

at::Tensor plain_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               at::Reduction::Reduction reduction, int64_t ignore_index,
                               double smoothing) {
  const bool is_half = at::isReducedFloatingType(logits.scalar_type());
  return at::cross_entropy_loss(is_half ? logits.to(at::kFloat) : logits, labels, /*weight=*/{},
                                reduction, ignore_index, smoothing);
}

at::Tensor mean_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                              int64_t ignore_index, double smoothing, bool is_fused) {
  ClassTargets targets;
  targets.labels = labels;
  targets.ignore_index = ignore_index;
  targets.smoothing = smoothing;
  if (is_fused && has_fused_cross_entropy(logits, targets))
    return fused_cross_entropy(logits, targets);
  const at::Tensor sum =
      plain_cross_entropy(logits, labels, at::Reduction::Sum, ignore_index, smoothing);
  return sum / (labels != ignore_index).sum().clamp_min(1);
}

}  // namespace brim::nn
