// What the way from a model to a fused operator takes: the operator by its name, the surroundings
// of its backward pass, and the formats that it computes in.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <vector>

#include "framework/nn/fused/dtypes.h"
#include "framework/nn/fused/upcast.h"

namespace brim::nn {

inline MaybeTensor maybe(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

/// An operator that a TORCH_LIBRARY of brim has defined.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// While a Function's forward() runs: its operators are not recorded, and compute in the formats of
/// what they are given.
class ForwardPass {
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// While a backward pass runs: its operators are not recorded, and compute in the formats that
/// forward has chosen, whatever autocast is on around backward(). Throws c10::NotImplementedError
/// where the pass's own gradient is wanted; `name` is for people: "batch norm".
class BackwardPass {
 public:
  explicit BackwardPass(const char* name) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "fused ", name,
                                ": its gradient has no gradient; turn fused operations off "
                                "(precision.fused = false)");
  }

 private:
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// What a matrix product or a convolution computes x in: autocast's format where that is on and
/// takes x.
inline at::ScalarType type_of_product(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  const bool is_lowered = x.is_floating_point() && x.scalar_type() != at::kDouble &&
                          at::autocast::is_autocast_enabled(device);
  return is_lowered ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

/// x in that format, as autocast casts it for those operators.
inline at::Tensor lowered(const at::Tensor& x) {
  const at::ScalarType type = type_of_product(x);
  return type == x.scalar_type() ? x : at::autocast::cached_cast(type, x, x.device().type());
}

/// The weight that x is multiplied by, cast so too, unless factor() takes it as it is.
inline at::Tensor lowered_weight(const at::Tensor& weight, const at::Tensor& x) {
  return upcasts_matmul(x, type_of_product(x)) ? weight : lowered(weight);
}

/// [..., C] as a matrix [N, C] of that type.
inline at::Tensor rows_of(const at::Tensor& x, at::ScalarType type) {
  return x.reshape({-1, x.size(-1)}).to(type);
}

/// A matrix with a row for each of x's, as those lie in x: [..., columns], in x's format.
inline at::Tensor laid_as(const at::Tensor& x, const at::Tensor& matrix) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = matrix.size(1);
  return matrix.to(x.scalar_type()).view(sizes);
}

/// Whether there are kernels for x's device and format.
inline bool has_fused_kernels(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  const bool by_all = type == at::kFloat || type == at::kBFloat16 || type == at::kDouble;
  if (x.is_cpu()) return by_all;
  return x.is_cuda() && (by_all || type == at::kHalf);
}

}  // namespace brim::nn
