// What the way from a model to a fused operator takes: the operator by its name, and the rule that
// its gradient has none.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <optional>

namespace brim::nn {

using MaybeTensor = std::optional<at::Tensor>;

inline MaybeTensor maybe(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

/// An operator that a TORCH_LIBRARY of brim has defined.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// For a backward pass: throws c10::NotImplementedError where its own gradient is wanted. `name` is
/// for people: "batch norm".
inline void refuse_second_gradient(const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "fused ", name,
                              ": its gradient has no gradient; turn fused operations off "
                              "(precision.fused = false)");
}

/// The format that parameters, statistics and sums have beside values of this one.
inline at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Whether there are kernels for x's device and format.
inline bool has_fused_kernels(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  const bool by_all = type == at::kFloat || type == at::kBFloat16 || type == at::kDouble;
  if (x.is_cpu()) return by_all;
  return x.is_cuda() && (by_all || type == at::kHalf);
}

}  // namespace brim::nn
