// A tensor's values as kernels take them: their format and where they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "framework/cuda/dtype.h"

namespace brim::cuda {

/// Throws c10::Error naming the operator where there is no kernel for the type.
inline Format format_of(const char* name, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Format::kFloat;
    case at::kBFloat16:
      return Format::kBFloat16;
    case at::kHalf:
      return Format::kHalf;
    case at::kDouble:
      return Format::kDouble;
    default:
      TORCH_CHECK(false, name, ": expected float32, float64, bfloat16 or float16, found ", type);
  }
}

/// Null where there is no tensor.
inline const void* pointer(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr() : nullptr;
}

}  // namespace brim::cuda
