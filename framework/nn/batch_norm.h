// Batch normalisation over images (Ioffe & Szegedy, ICML 2015), with the residual and the ReLU that
// follow it, whose statistics can be those of all ranks' samples together. Parameters, buffers and
// their names are torch::nn::BatchNorm2d's.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <optional>

#include "framework/nn/fused.h"
#include "framework/nn/fused/batch_norm.h"

namespace brim::nn {

/// Sums a tensor over all ranks, in place.
using SumOverRanks = std::function<void(const at::Tensor&)>;

/// Fused, it makes fewer passes over memory (fused/batch_norm.h) where images are channels_last; in
/// evaluation only where no gradient is asked for.
class BatchNorm2dImpl : public torch::nn::BatchNorm2dImpl, public Fusable {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  /// x [N, C, H, W] to the same shape. In training N may be 0 where other ranks have samples;
  /// throws Error(kRecipe) for a single value a channel.
  at::Tensor forward(const at::Tensor& x);
  /// relu(forward(x))
  at::Tensor forward_relu(const at::Tensor& x);
  /// relu(forward(x) + residual), both [N, C, H, W]
  at::Tensor forward_add_relu(const at::Tensor& x, const at::Tensor& residual);

  BatchNormState state() const { return {weight, bias, running_mean, running_var, options.eps()}; }
  /// How far the fused form of a training pass over x, with a ReLU behind it or not, moves the
  /// running statistics towards x's own, after counting the batch: the pass must follow. nullopt,
  /// and nothing is counted, where that form isn't taken. Throws as forward() does.
  std::optional<double> begin_fused_pass(const at::Tensor& x, const at::Tensor& residual,
                                         bool relu);

  /// From now on statistics in training are those of every rank's samples.
  void synchronize(SumOverRanks sum) { sum_ = std::move(sum); }

 private:
  void require_two_values(const at::Tensor& x) const;
  bool takes_fused_form(const at::Tensor& x, const at::Tensor& residual, bool relu) const;
  /// Undefined where there is no fused form.
  at::Tensor fused_forward(const at::Tensor& x, const at::Tensor& residual, bool relu);
  at::Tensor plain_forward(const at::Tensor& x);
  /// By the statistics of all ranks; a residual and ReLU only where is_fused.
  at::Tensor synchronized(const at::Tensor& x, const at::Tensor& residual, bool relu,
                          bool is_fused);
  /// One more batch is seen; how far the running statistics move towards its own.
  double count_batch();

  SumOverRanks sum_;  // empty: this rank's own
};
TORCH_MODULE(BatchNorm2d);

/// Synchronizes every nn::BatchNorm2d inside; returns how many there are.
int64_t synchronize_batch_norms(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace brim::nn
