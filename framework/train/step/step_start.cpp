#include "framework/train/step/step_start.h"

#include <ATen/ATen.h>

#include "framework/nn/model.h"

namespace brim::train {

StepStart::StepStart(const nn::Model& module, c10::Device device) : device_(device) {
  for (const at::Tensor& buffer : module.buffers()) {
    buffers_[buffer.scalar_type()].live.push_back(buffer);
    buffers_[buffer.scalar_type()].saved.push_back(at::empty_like(buffer));
  }
}

void StepStart::remember() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.saved, buffers.live);
  random_.emplace(device_);
}

void StepStart::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.live, buffers.saved);
  random_->restore();
}

void StepStart::restore_buffers_if(const at::Tensor& found_inf) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor is_skipped = found_inf.to(device_, at::kBool);
  for (auto& [type, buffers] : buffers_) {
    for (size_t i = 0; i < buffers.live.size(); ++i) {
      at::where_out(buffers.live[i], is_skipped, buffers.saved[i], buffers.live[i]);
    }
  }
}

}  // namespace brim::train
