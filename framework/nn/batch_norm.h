// Batch normalisation over images whose statistics can be those of all ranks' samples together
// (Ioffe & Szegedy, ICML 2015). Parameters, buffers and their names are torch::nn::BatchNorm2d's.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <functional>

namespace brim::nn {

/// Sums a tensor over all ranks, in place.
using SumOverRanks = std::function<void(const at::Tensor&)>;

class BatchNorm2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  /// x [N, C, H, W] to the same shape. In training N may be 0 where other ranks have samples;
  /// throws Error(kRecipe) for a single value a channel.
  at::Tensor forward(const at::Tensor& x);

  /// From now on statistics in training are those of every rank's samples.
  void synchronize(SumOverRanks sum) { sum_ = std::move(sum); }

 private:
  SumOverRanks sum_;  // empty: this rank's own
};
TORCH_MODULE(BatchNorm2d);

/// Synchronizes every nn::BatchNorm2d inside; returns how many there are.
int64_t synchronize_batch_norms(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace brim::nn
