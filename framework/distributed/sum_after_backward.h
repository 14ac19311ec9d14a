// Data parallel training whose passes hold no communication, as where they are recorded as CUDA
// graphs: gradients are summed over the ranks once backward is done.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/distributed/compute_timer.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/strategy.h"

namespace brim::distributed {

/// Every parameter that requires a gradient gets one in each step.
class SumAfterBackward : public Strategy {
 public:
  /// Throws Error(kDistributed) naming rank and parameter where models differ between ranks.
  SumAfterBackward(std::shared_ptr<Group> group, const torch::nn::Module& model,
                   const DataParallelOptions& options);

  void before_forward(bool sums) override;
  /// A parameter without a gradient on some rank is an Error(kRecipe) on every rank, which names
  /// the rank and its parameters. A sparse gradient is an Error(kRecipe) that names its parameter.
  bool backward(const at::Tensor& loss, bool sums, const std::function<void()>& backward) override;
  void give_up() override;
  void reset() override;
  double exposed_s() const override { return exposed_s_; }
  std::shared_ptr<const device::StreamEvent> own_work_done() const override;
  double take_compute_s() override;

 private:
  using Tensors = std::vector<at::Tensor>;
  /// Two, of bytes: while one is summed, the other is filled.
  using Memory = std::array<at::Tensor, 2>;
  Memory allocate() const;
  void sum(const Memory& memory);
  std::vector<std::string> without_gradient() const;

  std::shared_ptr<Group> group_;
  DataParallelOptions options_;
  std::vector<std::string> names_;
  Tensors parameters_;
  std::vector<Tensors> buckets_;       // of parameters of one dtype
  std::optional<ComputeTimer> timer_;  // from the first take_compute_s() on
  double exposed_s_ = 0;
  bool in_step_ = false;
};

}  // namespace brim::distributed
