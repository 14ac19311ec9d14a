// brim::layer_norm and brim::layer_norm_backward on CUDA; framework/nn/fused/layer_norm.h says what
// they do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "framework/cuda/layer_norm_kernel.h"
#include "framework/cuda/tensor_values.h"
#include "framework/nn/fused/dtypes.h"

namespace brim::cuda {
namespace {

using nn::MaybeTensor;
using nn::opmath_type;

void check_like(const char* what, const at::Tensor& tensor, const at::Tensor& x,
                at::ScalarType type) {
  TORCH_CHECK(tensor.sizes() == x.sizes() && tensor.scalar_type() == type &&
                  tensor.is_contiguous() && tensor.device() == x.device(),
              "layer_norm: expected ", what, " ", type, " ", x.sizes(), " without gaps on ",
              x.device(), ", found ", tensor.scalar_type(), " ", tensor.sizes(), " with strides ",
              tensor.strides(), " on ", tensor.device());
}

void check_vector(const char* what, const at::Tensor& tensor, int64_t size, const at::Tensor& x) {
  const at::ScalarType type = opmath_type(x);
  TORCH_CHECK(tensor.numel() == size && tensor.scalar_type() == type && tensor.is_contiguous() &&
                  tensor.device() == x.device(),
              "layer_norm: expected ", what, " ", type, " [", size, "] on ", x.device(), ", found ",
              tensor.scalar_type(), " ", tensor.sizes(), " on ", tensor.device());
}

LayerNormShape shape_of(const at::Tensor& x, at::ScalarType type) {
  TORCH_CHECK(x.dim() > 0 && x.numel() > 0 && x.size(-1) <= std::numeric_limits<int32_t>::max() &&
                  x.numel() / x.size(-1) <= std::numeric_limits<int32_t>::max(),
              "layer_norm: expected x [..., C] of fewer than 2^31 rows, found ", x.sizes());
  check_like("x", x, x, x.scalar_type());
  const bool is_lowered =
      x.scalar_type() == at::kFloat && (type == at::kBFloat16 || type == at::kHalf);
  TORCH_CHECK(type == x.scalar_type() || is_lowered, "layer_norm: no norm in ", type, " of ",
              x.scalar_type());
  return {.rows = x.numel() / x.size(-1),
          .channels = static_cast<int32_t>(x.size(-1)),
          .x = format_of("layer_norm", x.scalar_type()),
          .norm = format_of("layer_norm", type)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm(
    const at::Tensor& x, const MaybeTensor& branch, const at::Tensor& weight,
    const at::Tensor& bias, double eps, at::ScalarType type) {
  const LayerNormShape shape = shape_of(x, type);
  check_vector("a weight", weight, shape.channels, x);
  check_vector("a bias", bias, shape.channels, x);
  if (branch) check_like("a branch", *branch, x, type);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor sum = branch ? at::empty_like(x) : at::Tensor();
  at::Tensor norm = at::empty(x.sizes(), x.options().dtype(type));
  at::Tensor mean = at::empty({shape.rows}, weight.options());
  at::Tensor inverse_std = at::empty({shape.rows}, weight.options());
  C10_CUDA_CHECK(launch_layer_norm(shape,
                                   {.x = x.const_data_ptr(),
                                    .branch = pointer(branch),
                                    .weight = weight.const_data_ptr(),
                                    .bias = bias.const_data_ptr(),
                                    .eps = eps,
                                    .sum = branch ? sum.mutable_data_ptr() : nullptr,
                                    .mean = mean.mutable_data_ptr(),
                                    .inverse_std = inverse_std.mutable_data_ptr(),
                                    .norm = norm.mutable_data_ptr()},
                                   c10::cuda::getCurrentCUDAStream()));
  return {sum, norm, mean, inverse_std};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& sum_gradient, const at::Tensor& sum,
    const at::Tensor& mean, const at::Tensor& inverse_std, const at::Tensor& weight,
    bool has_branch) {
  const at::ScalarType type = gradient.scalar_type();
  const LayerNormShape shape = shape_of(sum, type);
  check_like("a gradient", gradient, sum, type);
  if (sum_gradient) check_like("a gradient of the sum", *sum_gradient, sum, sum.scalar_type());
  check_vector("a weight", weight, shape.channels, sum);
  check_vector("means", mean, shape.rows, sum);
  check_vector("1 / std", inverse_std, shape.rows, sum);
  const c10::cuda::CUDAGuard guard(sum.device());
  const bool has_own = has_branch && type != sum.scalar_type();
  at::Tensor x_gradient = at::empty_like(sum);
  at::Tensor branch_gradient = has_own ? at::empty_like(gradient) : at::Tensor();
  at::Tensor weight_gradient = at::empty_like(weight);
  at::Tensor bias_gradient = at::empty_like(weight);
  const at::Tensor sums = at::empty({layer_norm_sums(shape)}, sum.options().dtype(at::kDouble));
  C10_CUDA_CHECK(launch_layer_norm_backward(
      shape,
      {.gradient = gradient.const_data_ptr(),
       .sum_gradient = pointer(sum_gradient),
       .sum = sum.const_data_ptr(),
       .mean = mean.const_data_ptr(),
       .inverse_std = inverse_std.const_data_ptr(),
       .weight = weight.const_data_ptr(),
       .sums = sums.mutable_data_ptr<double>(),
       .x_gradient = x_gradient.mutable_data_ptr(),
       .branch_gradient = has_own ? branch_gradient.mutable_data_ptr() : nullptr,
       .weight_gradient = weight_gradient.mutable_data_ptr(),
       .bias_gradient = bias_gradient.mutable_data_ptr()},
      c10::cuda::getCurrentCUDAStream()));
  return {x_gradient, branch_gradient, weight_gradient, bias_gradient};
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) {
  library.impl("layer_norm", layer_norm);
  library.impl("layer_norm_backward", layer_norm_backward);
}

}  // namespace
}  // namespace brim::cuda
