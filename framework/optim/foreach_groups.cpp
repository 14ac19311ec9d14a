#include "framework/optim/foreach_groups.h"

#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>

namespace brim::optim {
namespace {

/// The fused kernels read parameter and gradient as flat memory, so their layouts must agree.
at::Tensor with_layout_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

/// The same memory in one dimension: the kernels copy what is not contiguous, weights that lie
/// channels last for one, though its order is nothing to them.
at::Tensor flat(const at::Tensor& tensor) {
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return tensor;
  return tensor.as_strided({tensor.numel()}, {1});
}

Batch& batch_for(std::vector<Batch>& batches, size_t first, const at::Tensor& parameter,
                 const ParameterGroup& group) {
  const auto found = std::find_if(batches.begin() + first, batches.end(), [&](const Batch& batch) {
    const auto& other = batch.parameters.front();
    return other.scalar_type() == parameter.scalar_type() && other.device() == parameter.device();
  });
  if (found != batches.end()) return *found;
  auto& batch = batches.emplace_back();
  batch.weight_decay = group.weight_decay;
  batch.rate_scale = group.rate_scale;
  return batch;
}

}  // namespace

std::vector<Batch> foreach_groups(const std::vector<ParameterGroup>& groups) {
  std::vector<Batch> batches;
  size_t slot = 0;
  for (const auto& group : groups) {
    const size_t first = batches.size();
    for (const auto& [name, parameter] : group.parameters) {
      const size_t own_slot = slot++;
      if (!parameter.grad().defined()) continue;
      auto& batch = batch_for(batches, first, parameter, group);
      batch.parameters.push_back(flat(parameter));
      batch.gradients.push_back(flat(with_layout_of(parameter, parameter.grad())));
      batch.slots.push_back(own_slot);
    }
  }
  return batches;
}

StateList StateList::zeros_like(const std::vector<ParameterGroup>& groups) {
  StateList list;
  for (const auto& group : groups) {
    for (const auto& [name, parameter] : group.parameters) {
      list.tensors_.push_back(at::zeros_like(parameter.detach()));
    }
  }
  return list;
}

StateList StateList::counters(const std::vector<ParameterGroup>& groups) {
  StateList list;
  for (const auto& group : groups) {
    for (const auto& [name, parameter] : group.parameters) {
      list.tensors_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
    }
  }
  return list;
}

std::vector<at::Tensor> StateList::of(const Batch& batch) const {
  std::vector<at::Tensor> result;
  result.reserve(batch.slots.size());
  for (const size_t slot : batch.slots) result.push_back(flat(tensors_[slot]));
  return result;
}

void StateList::describe(std::string_view prefix, const std::vector<ParameterGroup>& groups,
                         State& state) const {
  size_t slot = 0;
  for (const auto& group : groups) {
    for (const auto& [name, parameter] : group.parameters) {
      state[fmt::format("{}.{}", prefix, name)] = tensors_[slot++];
    }
  }
}

at::Tensor apply_scale(const Batch& batch, const StepScale& scale) {
  if (scale.grad_scale) at::_foreach_div_(batch.gradients, *scale.grad_scale);
  const auto options = batch.parameters.front().options();
  if (!scale.found_inf) return at::ones({}, options);
  const at::Tensor skip = scale.found_inf->gt(0);
  for (const at::Tensor& gradient : batch.gradients) gradient.masked_fill_(skip, 0);
  return skip.logical_not().to(options.dtype());
}

}  // namespace brim::optim
