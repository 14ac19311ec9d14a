// What a step works on: the parameters that have a gradient, in lists that one kernel can take.
// For optimizers, also of a library.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "framework/optim/optimizer.h"

namespace brim::optim {

/// Parameters of one group, dtype and device, with their gradients, in the same memory order; those
/// that are not contiguous as views of one dimension.
struct Batch {
  double weight_decay = 0.0;
  double rate_scale = 1.0;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<size_t> slots;  // place of each parameter in a StateList
};

/// The batches of a step. Parameters without a gradient are in none.
std::vector<Batch> foreach_groups(const std::vector<ParameterGroup>& groups);

/// One state tensor for each parameter of all groups, in order.
class StateList {
 public:
  /// Zeros of each parameter's shape, dtype and strides.
  static StateList zeros_like(const std::vector<ParameterGroup>& groups);
  /// Float32 zero scalars on each parameter's device, as the fused kernels count steps.
  static StateList counters(const std::vector<ParameterGroup>& groups);

  /// Those of a batch, views as its parameters are.
  std::vector<at::Tensor> of(const Batch& batch) const;
  /// Adds each as "<prefix>.<parameter>".
  void describe(std::string_view prefix, const std::vector<ParameterGroup>& groups,
                State& state) const;

 private:
  std::vector<at::Tensor> tensors_;
};

/// For optimizers made of foreach operations: divides the gradients by the scale, in place, and
/// turns them into zeros where the step is skipped. Returns 1 where the step counts and 0 where it
/// is skipped, a scalar of the batch's dtype and device, known to the device only.
at::Tensor apply_scale(const Batch& batch, const StepScale& scale);

}  // namespace brim::optim
