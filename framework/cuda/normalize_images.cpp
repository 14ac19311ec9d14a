// brim::normalize_images on CUDA; framework/data/normalize.h says what it does.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "framework/cuda/normalize_images_kernel.h"

namespace brim::cuda {
namespace {

at::Tensor normalize_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, bool channels_last) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte && pixels.dim() == 4 && pixels.is_contiguous(),
              "normalize_images: expected contiguous uint8 pixels [N, H, W, C], found ",
              pixels.scalar_type(), " ", pixels.sizes());
  for (const at::Tensor& t : {scale, bias}) {
    TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() == 1 &&
                    t.size(0) == pixels.size(3) && t.device() == pixels.device(),
                "normalize_images: expected contiguous float32 scale and bias [", pixels.size(3),
                "] on ", pixels.device(), ", found ", t.scalar_type(), " ", t.sizes(), " on ",
                t.device());
  }
  const c10::cuda::CUDAGuard guard(pixels.device());
  at::Tensor images =
      at::empty({pixels.size(0), pixels.size(3), pixels.size(1), pixels.size(2)}, scale.options(),
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (images.numel() == 0) return images;
  // A view may begin at any byte; the kernel loads words.
  const at::Tensor aligned = reinterpret_cast<uintptr_t>(pixels.const_data_ptr<uint8_t>()) % 4 == 0
                                 ? pixels
                                 : pixels.clone();
  C10_CUDA_CHECK(launch_normalize_images(
      aligned.const_data_ptr<uint8_t>(), scale.const_data_ptr<float>(),
      bias.const_data_ptr<float>(), images.mutable_data_ptr<float>(),
      {pixels.size(0), pixels.size(1) * pixels.size(2), pixels.size(3)}, channels_last,
      c10::cuda::getCurrentCUDAStream(pixels.device().index())));
  return images;
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) { library.impl("normalize_images", normalize_images); }

}  // namespace
}  // namespace brim::cuda
