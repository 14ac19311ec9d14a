#include "framework/nn/max_pool.h"

#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>

#include <vector>

#include "framework/nn/measured_forms.h"

namespace brim::nn {

at::Tensor MaxPool2dImpl::forward(const at::Tensor& x) {
  using Tensors = std::vector<at::Tensor>;
  const auto plain = [&](const at::Tensor& in) {
    return at::max_pool2d(in, window_.kernel, window_.stride, window_.padding);
  };
  if (!is_fused() || !has_fused_max_pool(x, window_)) return plain(x);
  const std::string name = fmt::format("max pool {} stride {} padding {}", window_.kernel,
                                       window_.stride, window_.padding);
  const bool takes = takes_fused(
      fused(), {.name = name, .batch = {x}, .parameters = {}, .is_training = is_training()},
      [&](const auto& in, const auto&) -> Tensors { return {fused_max_pool(in[0], window_)}; },
      [&](const auto& in, const auto&) -> Tensors { return {plain(in[0])}; });
  return takes ? fused_max_pool(x, window_) : plain(x);
}

}  // namespace brim::nn
