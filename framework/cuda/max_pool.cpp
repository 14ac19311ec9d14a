// brim::max_pool and brim::max_pool_backward on CUDA; framework/nn/fused/max_pool.h says what they
// do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>
#include <tuple>
#include <vector>

#include "framework/cuda/max_pool_kernel.h"
#include "framework/cuda/tensor_values.h"

namespace brim::cuda {
namespace {

void check_images(const char* what, const at::Tensor& t) {
  TORCH_CHECK(t.dim() == 4 && t.numel() > 0 && t.is_contiguous(at::MemoryFormat::ChannelsLast),
              "max_pool: expected ", what, " [N, C, H, W] in channels_last, found ", t.sizes(),
              " with strides ", t.strides());
}

/// Of images of x's sizes, [N, C, H, W].
PoolShape shape_of(at::IntArrayRef x, at::ScalarType type, int64_t kernel, int64_t stride,
                   int64_t padding) {
  TORCH_CHECK(kernel > 0 && kernel <= 16 && stride > 0 && stride <= kernel && padding >= 0 &&
                  2 * padding <= kernel,
              "max_pool: expected a kernel of up to 16, a stride of up to that and half of it as "
              "padding at most, found ",
              kernel, ", ", stride, " and ", padding);
  TORCH_CHECK(x[2] + 2 * padding >= kernel && x[3] + 2 * padding >= kernel,
              "max_pool: expected windows of ", kernel, " to fit into ", x);
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(x[0] * x[2] <= kMaxRows && x[1] * x[3] <= kMaxRows,
              "max_pool: expected fewer than 2^31 rows of fewer than 2^31 values, found ", x);
  const auto pooled = [&](int64_t size) {
    return static_cast<int32_t>((size + 2 * padding - kernel) / stride + 1);
  };
  return {.images = static_cast<int32_t>(x[0]),
          .height = static_cast<int32_t>(x[2]),
          .width = static_cast<int32_t>(x[3]),
          .channels = static_cast<int32_t>(x[1]),
          .out_height = pooled(x[2]),
          .out_width = pooled(x[3]),
          .kernel = static_cast<int32_t>(kernel),
          .stride = static_cast<int32_t>(stride),
          .padding = static_cast<int32_t>(padding),
          .format = format_of("max_pool", type)};
}

std::vector<int64_t> pooled_sizes(const PoolShape& shape) {
  return {shape.images, shape.channels, shape.out_height, shape.out_width};
}

std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& x, int64_t kernel, int64_t stride,
                                            int64_t padding) {
  check_images("x", x);
  const PoolShape shape = shape_of(x.sizes(), x.scalar_type(), kernel, stride, padding);
  const c10::cuda::CUDAGuard guard(x.device());
  const std::vector<int64_t> sizes = pooled_sizes(shape);
  at::Tensor y = at::empty(sizes, x.options(), at::MemoryFormat::ChannelsLast);
  at::Tensor places =
      at::empty(sizes, x.options().dtype(at::kByte), at::MemoryFormat::ChannelsLast);
  C10_CUDA_CHECK(launch_max_pool(shape, x.const_data_ptr(), y.mutable_data_ptr(),
                                 places.mutable_data_ptr<uint8_t>(),
                                 c10::cuda::getCurrentCUDAStream()));
  return {y, places};
}

at::Tensor max_pool_backward(const at::Tensor& gradient, const at::Tensor& places, int64_t height,
                             int64_t width, int64_t kernel, int64_t stride, int64_t padding) {
  check_images("the gradient", gradient);
  check_images("places", places);
  const std::vector<int64_t> sizes = {gradient.size(0), gradient.size(1), height, width};
  const PoolShape shape = shape_of(sizes, gradient.scalar_type(), kernel, stride, padding);
  TORCH_CHECK(gradient.sizes() == at::IntArrayRef(pooled_sizes(shape)),
              "max_pool: expected a gradient of what is pooled of ", sizes, ", found ",
              gradient.sizes());
  TORCH_CHECK(places.scalar_type() == at::kByte && places.sizes() == gradient.sizes() &&
                  places.device() == gradient.device(),
              "max_pool: expected places like the gradient, ", gradient.sizes(), ", found ",
              places.scalar_type(), " ", places.sizes());
  const c10::cuda::CUDAGuard guard(gradient.device());
  at::Tensor result = at::empty(sizes, gradient.options(), at::MemoryFormat::ChannelsLast);
  C10_CUDA_CHECK(
      launch_max_pool_backward(shape, gradient.const_data_ptr(), places.const_data_ptr<uint8_t>(),
                               result.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  return result;
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) {
  library.impl("max_pool", max_pool);
  library.impl("max_pool_backward", max_pool_backward);
}

}  // namespace
}  // namespace brim::cuda
