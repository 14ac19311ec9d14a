#include "framework/train/step_start.h"

#include <ATen/ATen.h>

#include "framework/train/state.h"

namespace brim::train {

StepStart::StepStart(const Parts& parts) {
  for (const at::Tensor& buffer : parts.model->buffers()) {
    buffers_[buffer.scalar_type()].live.push_back(buffer);
    buffers_[buffer.scalar_type()].saved.push_back(at::empty_like(buffer));
  }
  for (const auto& [name, generator] : generators(parts)) generators_.push_back(generator);
}

void StepStart::remember() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.saved, buffers.live);
  random_.clear();
  for (const at::Generator& generator : generators_) random_.push_back(generator.get_state());
}

void StepStart::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [type, buffers] : buffers_) at::_foreach_copy_(buffers.live, buffers.saved);
  for (size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(random_[i]);
}

}  // namespace brim::train
