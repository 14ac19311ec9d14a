#include "framework/train/step/step_start.h"

#include <ATen/ATen.h>

#include "framework/nn/model.h"

namespace brim::train {
namespace {

/// Views of what one tensor holds of each.
std::vector<at::Tensor> parts_of(const at::Tensor& all, const std::vector<at::Tensor>& each) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const at::Tensor& one : each) {
    parts.push_back(all.narrow(0, first, one.numel()).view(one.sizes()));
    first += one.numel();
  }
  return parts;
}

}  // namespace

std::vector<at::Tensor> StepStart::Buffers::flat() const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& buffer : live) result.push_back(buffer.reshape(-1));
  return result;
}

StepStart::StepStart(const nn::Model& module, c10::Device device) : device_(device) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : module.buffers()) {
    buffers_[buffer.scalar_type()].live.push_back(buffer);
  }
  for (auto& [type, buffers] : buffers_) {
    buffers.saved = at::cat(buffers.flat());
    buffers.chosen = at::empty_like(buffers.saved);
    buffers.saved_parts = parts_of(buffers.saved, buffers.live);
    buffers.chosen_parts = parts_of(buffers.chosen, buffers.live);
  }
}

void StepStart::remember() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.saved_parts, buffers.live);
  random_.emplace(device_);
}

void StepStart::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.live, buffers.saved_parts);
  random_->restore();
}

void StepStart::restore_buffers_if(const at::Tensor& found_inf) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor is_skipped = found_inf.to(device_, at::kBool);
  for (auto& [type, buffers] : buffers_) {
    at::cat_out(buffers.chosen, buffers.flat());
    at::where_out(buffers.chosen, is_skipped, buffers.saved, buffers.chosen);
    at::_foreach_copy_(buffers.live, buffers.chosen_parts);
  }
}

}  // namespace brim::train
