// Clipping of gradients by their global norm (Pascanu et al., ICML 2013).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace brim::optim {

/// Scales the gradients in place so that their joint L2 norm is at most `max_norm` (> 0), with
/// torch's factor max_norm / (norm + 1e-6). Returns the norm before, a scalar on the gradients'
/// device (on the CPU where there are none), without waiting for it. Where the norm is not finite
/// the gradients stay as they are: the scaler or the not-a-number policy decides about them.
///
/// Where the gradients are a part of all, `add_up` makes of this part's sum of squares, a scalar,
/// that of all parts; those of `counted_elsewhere` are scaled, too, and count in another part.
at::Tensor clip_grad_norm(at::TensorList gradients, double max_norm,
                          const std::function<void(at::Tensor& squares)>& add_up = {},
                          at::TensorList counted_elsewhere = {});

}  // namespace brim::optim
