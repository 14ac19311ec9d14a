// brim::batch_norm, brim::batch_norm_backward and brim::batch_norm_apply on CUDA;
// framework/nn/fused/batch_norm.h says what they do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "framework/cuda/batch_norm_kernel.h"
#include "framework/cuda/tensor_values.h"
#include "framework/nn/fused/dtypes.h"

namespace brim::cuda {
namespace {

using nn::MaybeTensor;
using nn::opmath_type;

void check_like(const char* what, const at::Tensor& tensor, const at::Tensor& x) {
  TORCH_CHECK(tensor.sizes() == x.sizes() && tensor.scalar_type() == x.scalar_type() &&
                  tensor.device() == x.device() &&
                  tensor.is_contiguous(at::MemoryFormat::ChannelsLast),
              "batch_norm: expected ", what, " in channels_last like x, ", x.scalar_type(), " ",
              x.sizes(), " on ", x.device(), ", found ", tensor.scalar_type(), " ", tensor.sizes(),
              " with strides ", tensor.strides(), " on ", tensor.device());
}

NormShape shape_of(const at::Tensor& x, std::initializer_list<const at::Tensor*> of_channels) {
  TORCH_CHECK(x.dim() == 4 && x.numel() > 0 && x.size(1) <= std::numeric_limits<int32_t>::max(),
              "batch_norm: expected x [N, C, H, W] of fewer than 2^31 channels, found ", x.sizes());
  check_like("x", x, x);
  const at::ScalarType type = opmath_type(x);
  for (const at::Tensor* t : of_channels) {
    TORCH_CHECK(t->dim() == 1 && t->size(0) == x.size(1) && t->scalar_type() == type &&
                    t->is_contiguous() && t->device() == x.device(),
                "batch_norm: expected ", type, " [", x.size(1), "] on ", x.device(),
                " for each channel, found ", t->scalar_type(), " ", t->sizes(), " on ",
                t->device());
  }
  return {x.numel() / x.size(1), static_cast<int32_t>(x.size(1)),
          format_of("batch_norm", x.scalar_type())};
}

at::Tensor like(const at::Tensor& x) {
  return at::empty_like(x, x.options(), at::MemoryFormat::ChannelsLast);
}

at::Tensor sums_for(NormShape shape, const at::Tensor& x) {
  return at::empty({norm_sums(shape)}, x.options().dtype(at::kDouble));
}

at::Tensor normalise(NormShape shape, const at::Tensor& x, const MaybeTensor& residual,
                     const at::Tensor& mean, const at::Tensor& inverse_std,
                     const at::Tensor& weight, const at::Tensor& bias, bool relu) {
  at::Tensor y = like(x);
  C10_CUDA_CHECK(launch_normalise(shape, x.const_data_ptr(), pointer(residual),
                                  {mean.const_data_ptr(), inverse_std.const_data_ptr(),
                                   weight.const_data_ptr(), bias.const_data_ptr()},
                                  relu, y.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& x, const MaybeTensor& residual, const at::Tensor& weight,
    const at::Tensor& bias, at::Tensor& running_mean, at::Tensor& running_var, double momentum,
    double eps, bool relu) {
  const NormShape shape = shape_of(x, {&weight, &bias, &running_mean, &running_var});
  if (residual) check_like("a residual", *residual, x);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor mean = at::empty_like(running_mean);
  at::Tensor inverse_std = at::empty_like(running_mean);
  const at::Tensor sums = sums_for(shape, x);
  C10_CUDA_CHECK(launch_norm_statistics(
      shape, x.const_data_ptr(), sums.mutable_data_ptr<double>(),
      {mean.mutable_data_ptr(), inverse_std.mutable_data_ptr(), running_mean.mutable_data_ptr(),
       running_var.mutable_data_ptr(), momentum, eps},
      c10::cuda::getCurrentCUDAStream()));
  at::Tensor y = normalise(shape, x, residual, mean, inverse_std, weight, bias, relu);
  return {y, mean, inverse_std};
}

at::Tensor batch_norm_apply(const at::Tensor& x, const MaybeTensor& residual,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& inverse_std, bool relu) {
  const NormShape shape = shape_of(x, {&weight, &bias, &mean, &inverse_std});
  if (residual) check_like("a residual", *residual, x);
  const c10::cuda::CUDAGuard guard(x.device());
  return normalise(shape, x, residual, mean, inverse_std, weight, bias, relu);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& more, const at::Tensor& x, const MaybeTensor& y,
    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
    const at::Tensor& inverse_std, bool relu, bool has_residual) {
  const NormShape shape = shape_of(x, {&weight, &bias, &mean, &inverse_std});
  check_like("the gradient", gradient, x);
  const bool by_output = relu && has_residual;
  TORCH_CHECK(!by_output || y.has_value(), "batch_norm: a residual's gradient needs the result");
  if (by_output) check_like("the result", *y, x);
  if (more) check_like("the rest of the gradient", *more, x);
  const c10::cuda::CUDAGuard guard(x.device());
  if (more && !by_output) {  // the gradient of the result is read twice
    return batch_norm_backward(gradient.add(*more), std::nullopt, x, y, weight, bias, mean,
                               inverse_std, relu, has_residual);
  }
  at::Tensor x_gradient = like(x);
  at::Tensor residual_gradient = has_residual ? like(x) : at::Tensor();
  at::Tensor weight_gradient = at::empty_like(mean);
  at::Tensor bias_gradient = at::empty_like(mean);
  const at::Tensor sums = sums_for(shape, x);
  const at::Tensor slopes = at::empty({2, x.size(1)}, mean.options());
  C10_CUDA_CHECK(launch_norm_backward(
      shape,
      {.gradient = gradient.const_data_ptr(),
       .more = pointer(more),
       .x = x.const_data_ptr(),
       .y = by_output ? y->const_data_ptr() : nullptr,
       .relu = relu,
       .factors = {mean.const_data_ptr(), inverse_std.const_data_ptr(), weight.const_data_ptr(),
                   bias.const_data_ptr()},
       .sums = sums.mutable_data_ptr<double>(),
       .slopes = slopes.mutable_data_ptr(),
       .residual = has_residual ? residual_gradient.mutable_data_ptr() : nullptr,
       .weight = weight_gradient.mutable_data_ptr(),
       .bias = bias_gradient.mutable_data_ptr(),
       .x_gradient = x_gradient.mutable_data_ptr()},
      c10::cuda::getCurrentCUDAStream()));
  return {x_gradient, residual_gradient, weight_gradient, bias_gradient};
}

at::Tensor batch_norm_moments(const at::Tensor& x) {
  const NormShape shape = shape_of(x, {});
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor sums = sums_for(shape, x);
  const at::Tensor shifts = at::empty({x.size(1)}, x.options().dtype(opmath_type(x)));
  at::Tensor moments = at::empty({2, x.size(1)}, x.options().dtype(at::kDouble));
  C10_CUDA_CHECK(launch_norm_moments(shape, x.const_data_ptr(), sums.mutable_data_ptr<double>(),
                                     shifts.mutable_data_ptr(), moments.mutable_data_ptr<double>(),
                                     c10::cuda::getCurrentCUDAStream()));
  return moments;
}

std::tuple<at::Tensor, at::Tensor> batch_norm_backward_sums(
    const at::Tensor& gradient, const at::Tensor& x, const MaybeTensor& y, const at::Tensor& weight,
    const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_std, bool relu) {
  const NormShape shape = shape_of(x, {&weight, &bias, &mean, &inverse_std});
  check_like("the gradient", gradient, x);
  if (y) check_like("the result", *y, x);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor masked = relu ? like(x) : at::Tensor();
  at::Tensor totals = at::empty({2, x.size(1)}, x.options().dtype(at::kDouble));
  const at::Tensor sums = sums_for(shape, x);
  C10_CUDA_CHECK(launch_norm_gradient_sums(
      shape,
      {.gradient = gradient.const_data_ptr(),
       .x = x.const_data_ptr(),
       .y = pointer(y),
       .relu = relu,
       .factors = {mean.const_data_ptr(), inverse_std.const_data_ptr(), weight.const_data_ptr(),
                   bias.const_data_ptr()},
       .sums = sums.mutable_data_ptr<double>(),
       .residual = relu ? masked.mutable_data_ptr() : nullptr},
      totals.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream()));
  return {totals, masked};
}

at::Tensor batch_norm_backward_apply(const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const at::Tensor& mean,
                                     const at::Tensor& inverse_std, const at::Tensor& slopes) {
  const at::Tensor slope = slopes.select(0, 0), offset = slopes.select(0, 1);
  const NormShape shape = shape_of(x, {&weight, &mean, &inverse_std, &slope, &offset});
  check_like("the gradient", gradient, x);
  TORCH_CHECK(slopes.is_contiguous(), "batch_norm: expected slopes [2, C] side by side");
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor x_gradient = like(x);
  C10_CUDA_CHECK(launch_norm_input_gradient(
      shape,
      {.gradient = gradient.const_data_ptr(),
       .x = x.const_data_ptr(),
       .factors = {mean.const_data_ptr(), inverse_std.const_data_ptr(), weight.const_data_ptr(),
                   mean.const_data_ptr()},  // no bias is asked for
       .slopes = slopes.data_ptr(),
       .x_gradient = x_gradient.mutable_data_ptr()},
      c10::cuda::getCurrentCUDAStream()));
  return x_gradient;
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) {
  library.impl("batch_norm_moments", batch_norm_moments);
  library.impl("batch_norm_backward_sums", batch_norm_backward_sums);
  library.impl("batch_norm_backward_apply", batch_norm_backward_apply);
  library.impl("batch_norm", batch_norm);
  library.impl("batch_norm_backward", batch_norm_backward);
  library.impl("batch_norm_apply", batch_norm_apply);
}

}  // namespace
}  // namespace brim::cuda
