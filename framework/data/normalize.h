// The operator brim::normalize_images: uint8 pixels as datasets give them to floats as models take
// them. Defined here with its CPU kernel; framework/cuda/ adds the CUDA kernel.
#pragma once

#include <ATen/core/Tensor.h>

namespace brim::data {

/// pixels uint8 [N, H, W, C] to float32 [N, C, H, W]: y = x · scale[c] + bias[c]. scale and bias
/// are float32 [C] on pixels' device. channels_last: the result lies in memory as [N, H, W, C].
at::Tensor normalize_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, bool channels_last);

}  // namespace brim::data
