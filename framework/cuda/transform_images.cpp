// brim::transform_images on CUDA; framework/data/transfer/transform_images.h says what it does.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>
#include <optional>

#include "framework/cuda/transform_images_kernel.h"

namespace brim::cuda {
namespace {

void check(const at::Tensor& pixels, const at::Tensor& scale, const at::Tensor& bias,
           const std::optional<at::Tensor>& changes) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte && pixels.dim() == 4 && pixels.is_contiguous(),
              "transform_images: expected contiguous uint8 pixels [N, H, W, C], found ",
              pixels.scalar_type(), " ", pixels.sizes());
  for (const at::Tensor& t : {scale, bias}) {
    TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() == 1 &&
                    t.size(0) == pixels.size(3) && t.device() == pixels.device(),
                "transform_images: expected contiguous float32 scale and bias [", pixels.size(3),
                "] on ", pixels.device(), ", found ", t.scalar_type(), " ", t.sizes(), " on ",
                t.device());
  }
  TORCH_CHECK(
      !changes || (changes->scalar_type() == at::kInt && changes->is_contiguous() &&
                   changes->dim() == 2 && changes->size(0) == pixels.size(0) &&
                   changes->size(1) == data::kChangeInts && changes->device() == pixels.device()),
      "transform_images: expected contiguous int32 changes [", pixels.size(0), ", ",
      data::kChangeInts, "] on ", pixels.device(), ", found ", changes->scalar_type(), " ",
      changes->sizes(), " on ", changes->device());
}

FloatType float_type(at::ScalarType dtype) {
  if (dtype == at::kFloat) return FloatType::kFloat;
  if (dtype == at::kBFloat16) return FloatType::kBFloat16;
  TORCH_CHECK(dtype == at::kHalf, "transform_images: expected float32, bfloat16 or float16, found ",
              dtype);
  return FloatType::kHalf;
}

at::Tensor transform_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, const std::optional<at::Tensor>& changes,
                            bool channels_last, at::ScalarType dtype) {
  check(pixels, scale, bias, changes);
  const FloatType type = float_type(dtype);
  const ImageSizes sizes = {pixels.size(0), pixels.size(1), pixels.size(2), pixels.size(3)};
  const c10::cuda::CUDAGuard guard(pixels.device());
  at::Tensor images = at::empty(
      {sizes.count, sizes.channels, sizes.height, sizes.width}, scale.options().dtype(dtype),
      channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (images.numel() == 0) return images;
  TORCH_CHECK(images.numel() / sizes.count <= std::numeric_limits<int32_t>::max(),
              "transform_images: expected images of fewer than 2^31 values, found ",
              pixels.sizes());
  // A view may begin at any byte; the kernel loads words.
  const at::Tensor aligned = reinterpret_cast<uintptr_t>(pixels.const_data_ptr<uint8_t>()) % 4 == 0
                                 ? pixels
                                 : pixels.clone();
  const ImageInputs inputs = {
      aligned.const_data_ptr<uint8_t>(), scale.const_data_ptr<float>(),
      bias.const_data_ptr<float>(),
      changes ? static_cast<const data::ImageChange*>(changes->const_data_ptr()) : nullptr};
  C10_CUDA_CHECK(launch_transform_images(inputs, sizes, channels_last, type,
                                         images.mutable_data_ptr(),
                                         c10::cuda::getCurrentCUDAStream(pixels.device().index())));
  return images;
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) { library.impl("transform_images", transform_images); }

}  // namespace
}  // namespace brim::cuda
