// brim::cross_entropy and brim::cross_entropy_backward on CUDA; framework/nn/fused/cross_entropy.h
// says what they do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <tuple>

#include "framework/cuda/cross_entropy_kernel.h"
#include "framework/cuda/tensor_values.h"
#include "framework/nn/fused/dtypes.h"

namespace brim::cuda {
namespace {

using nn::MaybeTensor;
using nn::opmath_type;

void check_rows(const at::Tensor& values, at::ScalarType type, const at::Tensor& logits) {
  TORCH_CHECK(
      values.dim() == 1 && values.size(0) == logits.size(0) && values.scalar_type() == type &&
          values.is_contiguous() && values.device() == logits.device(),
      "cross_entropy: expected ", type, " [", logits.size(0), "] on ", logits.device(),
      " for each row, found ", values.scalar_type(), " ", values.sizes(), " on ", values.device());
}

CrossEntropyInputs inputs_of(const at::Tensor& logits, const at::Tensor& labels,
                             const MaybeTensor& partner_labels, const MaybeTensor& label_shares,
                             int64_t ignore_index, double smoothing) {
  TORCH_CHECK(logits.dim() == 2 && logits.numel() > 0 && logits.stride(1) == 1,
              "cross_entropy: expected logits [N, C] with a row's side by side, found ",
              logits.sizes(), " with strides ", logits.strides());
  check_rows(labels, at::kLong, logits);
  TORCH_CHECK(partner_labels.has_value() == label_shares.has_value(),
              "cross_entropy: partner_labels and label_shares come together");
  CrossEntropyInputs inputs = {.format = format_of("cross_entropy", logits.scalar_type()),
                               .logits = logits.const_data_ptr(),
                               .rows = logits.size(0),
                               .classes = logits.size(1),
                               .stride = logits.stride(0),
                               .labels = labels.const_data_ptr<int64_t>(),
                               .ignore_index = ignore_index,
                               .smoothing = smoothing};
  if (!partner_labels) return inputs;
  check_rows(*partner_labels, at::kLong, logits);
  check_rows(*label_shares, at::kFloat, logits);
  inputs.partner_labels = partner_labels->const_data_ptr<int64_t>();
  inputs.label_shares = label_shares->const_data_ptr<float>();
  return inputs;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(
    const at::Tensor& logits, const at::Tensor& labels, const MaybeTensor& partner_labels,
    const MaybeTensor& label_shares, int64_t ignore_index, double smoothing) {
  const CrossEntropyInputs inputs =
      inputs_of(logits, labels, partner_labels, label_shares, ignore_index, smoothing);
  const c10::cuda::CUDAGuard guard(logits.device());
  const auto options = logits.options().dtype(opmath_type(logits));
  const at::Tensor losses = at::empty({inputs.rows}, options.dtype(at::kDouble));
  at::Tensor rows = at::empty({2, inputs.rows}, options);
  at::Tensor loss = at::empty({}, options);
  at::Tensor share = at::empty({}, options);
  C10_CUDA_CHECK(launch_cross_entropy(inputs, losses.mutable_data_ptr<double>(),
                                      rows.mutable_data_ptr(), loss.mutable_data_ptr(),
                                      share.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  return {loss, rows, share};
}

at::Tensor cross_entropy_backward(const at::Tensor& gradient, const at::Tensor& logits,
                                  const at::Tensor& labels, const MaybeTensor& partner_labels,
                                  const MaybeTensor& label_shares, const at::Tensor& rows,
                                  const at::Tensor& share, int64_t ignore_index, double smoothing) {
  const CrossEntropyInputs inputs =
      inputs_of(logits, labels, partner_labels, label_shares, ignore_index, smoothing);
  const auto check = [&](const at::Tensor& tensor, int64_t count) {
    TORCH_CHECK(tensor.numel() == count && tensor.scalar_type() == opmath_type(logits) &&
                    tensor.is_contiguous() && tensor.device() == logits.device(),
                "cross_entropy: expected ", count, " of ", opmath_type(logits), " on ",
                logits.device(), ", found ", tensor.scalar_type(), " ", tensor.sizes(), " on ",
                tensor.device());
  };
  check(gradient, 1);
  check(share, 1);
  check(rows, 2 * inputs.rows);
  const c10::cuda::CUDAGuard guard(logits.device());
  // Where rows of logits begin on packs, as those of a padded vocabulary do (aligned_linear.h), the
  // gradient's lie as they do.
  const int64_t pack = kPackBytes / static_cast<int64_t>(logits.element_size());
  const int64_t stride = inputs.stride % pack == 0 ? inputs.stride : inputs.classes;
  const at::Tensor padded = at::empty({inputs.rows, stride}, logits.options());
  C10_CUDA_CHECK(launch_cross_entropy_backward(
      inputs, rows.const_data_ptr(), share.const_data_ptr(), gradient.const_data_ptr(),
      padded.mutable_data_ptr(), stride, c10::cuda::getCurrentCUDAStream()));
  return padded.narrow(1, 0, inputs.classes);
}

TORCH_LIBRARY_IMPL(brim, CUDA, library) {
  library.impl("cross_entropy", cross_entropy);
  library.impl("cross_entropy_backward", cross_entropy_backward);
}

}  // namespace
}  // namespace brim::cuda
