#include "framework/train/step_start.h"

#include <ATen/ATen.h>

#include "framework/train/state.h"

namespace brim::train {

StepStart::StepStart(const Parts& parts) : buffers_(parts.model->buffers()) {
  for (const at::Tensor& buffer : buffers_) saved_.push_back(at::empty_like(buffer));
  for (const auto& [name, generator] : generators(parts)) generators_.push_back(generator);
}

void StepStart::remember() {
  const at::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(saved_, buffers_);
  random_.clear();
  for (const at::Generator& generator : generators_) random_.push_back(generator.get_state());
}

void StepStart::restore() {
  const at::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(buffers_, saved_);
  for (size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(random_[i]);
}

}  // namespace brim::train
