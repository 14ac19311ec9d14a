// brim::bias_gelu and brim::bias_gelu_backward on CUDA; framework/nn/fused/gelu.h says what they
// do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "framework/cuda/gelu_kernel.h"
#include "framework/cuda/tensor_values.h"
#include "framework/nn/fused/dtypes.h"

namespace brim::cuda {
namespace {

GeluShape shape_of(const at::Tensor& x, const at::Tensor& bias, bool tanh) {
  TORCH_CHECK(x.dim() > 0 && x.numel() > 0 && x.is_contiguous() &&
                  x.size(-1) <= std::numeric_limits<int32_t>::max(),
              "bias_gelu: expected x [..., C] without gaps, found ", x.sizes(), " with strides ",
              x.strides());
  const at::ScalarType type = nn::opmath_type(x);
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == x.size(-1) && bias.scalar_type() == type &&
                  bias.is_contiguous() && bias.device() == x.device(),
              "bias_gelu: expected a bias ", type, " [", x.size(-1), "] on ", x.device(),
              ", found ", bias.scalar_type(), " ", bias.sizes(), " on ", bias.device());
  return {.rows = x.numel() / x.size(-1),
          .channels = static_cast<int32_t>(x.size(-1)),
          .format = format_of("bias_gelu", x.scalar_type()),
          .tanh = tanh};
}

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, bool tanh) {
  const GeluShape shape = shape_of(x, bias, tanh);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty_like(x);
  C10_CUDA_CHECK(launch_bias_gelu(shape, x.const_data_ptr(), bias.const_data_ptr(),
                                  y.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  return y;
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& gradient,
                                                      const at::Tensor& x, const at::Tensor& bias,
                                                      bool tanh) {
  const GeluShape shape = shape_of(x, bias, tanh);
  TORCH_CHECK(gradient.sizes() == x.sizes() && gradient.scalar_type() == x.scalar_type() &&
                  gradient.is_contiguous() && gradient.device() == x.device(),
              "bias_gelu: expected a gradient like x, ", x.scalar_type(), " ", x.sizes(), " on ",
              x.device(), ", found ", gradient.scalar_type(), " ", gradient.sizes(),
              " with strides ", gradient.strides(), " on ", gradient.device());
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor x_gradient = at::empty_like(x);
  at::Tensor bias_gradient = at::empty_like(bias);
  const at::Tensor sums = at::empty({gelu_sums(shape)}, x.options().dtype(at::kDouble));
  C10_CUDA_CHECK(launch_bias_gelu_backward(shape,
                                           {.gradient = gradient.const_data_ptr(),
                                            .x = x.const_data_ptr(),
                                            .bias = bias.const_data_ptr(),
                                            .sums = sums.mutable_data_ptr<double>(),
                                            .x_gradient = x_gradient.mutable_data_ptr(),
                                            .bias_gradient = bias_gradient.mutable_data_ptr()},
                                           c10::cuda::getCurrentCUDAStream()));
  return {x_gradient, bias_gradient};
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) {
  library.impl("bias_gelu", bias_gelu);
  library.impl("bias_gelu_backward", bias_gelu_backward);
}

}  // namespace
}  // namespace brim::cuda
