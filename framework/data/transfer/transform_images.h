// The operator brim::transform_images: uint8 pixels as datasets give them to floats as models take
// them, and what changes a batch (image_change.h), in one pass over memory. Defined here with its
// CPU kernel; framework/cuda/ adds the CUDA kernel, which gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace brim::data {

/// pixels uint8 [N, H, W, C] to `dtype` (float32, bfloat16 or float16) [N, C, H, W]: computed in
/// float32 as y = x · scale[c] + bias[c], changed as `changes` says, then rounded to dtype. scale
/// and bias are float32 [C] on pixels' device. changes: int32 [N, kChangeInts] there, the bytes of
/// one ImageChange an image; nullopt: none. A change is not mixed whose partner is not in the
/// batch. channels_last: the result lies in memory as [N, H, W, C].
at::Tensor transform_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, const std::optional<at::Tensor>& changes,
                            bool channels_last, at::ScalarType dtype = at::kFloat);

}  // namespace brim::data
