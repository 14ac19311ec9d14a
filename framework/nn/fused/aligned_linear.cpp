#include "framework/nn/fused/aligned_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kUnitBytes = 16;      // that matrix units read and write at once
constexpr int64_t kRowBytes = 128;      // of memory on a GPU, on which rows begin
constexpr int64_t kManyOutputs = 2048;  // fewer take no time that is worth a copy of the weight
constexpr int64_t kManyRows = 256;

/// [N, columns] of [N, O] with zeros behind: in place where its memory is laid out so and belongs
/// to no other tensor, as that of cross-entropy's gradient.
at::Tensor widened(const at::Tensor& matrix, int64_t columns) {
  const int64_t rows = matrix.size(0), used = matrix.size(1);
  const auto end = static_cast<size_t>((matrix.storage_offset() + rows * columns) *
                                       static_cast<int64_t>(matrix.element_size()));
  const bool is_wide = matrix.stride(0) == columns && matrix.stride(1) == 1;
  if (!is_wide || matrix.storage().nbytes() < end || matrix.storage().use_count() != 1) {
    return at::constant_pad_nd(matrix, {0, columns - used});
  }
  const at::Tensor wide = matrix.as_strided({rows, columns}, {columns, 1});
  wide.narrow(1, used, columns - used).zero_();
  return wide;
}

class AlignedLinear : public Function<AlignedLinear> {
 public:
  /// x [N, I], whose format is the product's.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    const ForwardPass pass;
    const int64_t outputs = weight.size(0);
    const auto unit = kRowBytes / static_cast<int64_t>(x.element_size());
    const int64_t padded = (outputs + unit - 1) / unit * unit;
    const at::Tensor rows = at::empty({padded, weight.size(1)}, x.options());
    rows.narrow(0, 0, outputs).copy_(weight);
    rows.narrow(0, outputs, padded - outputs).zero_();
    context->save_for_backward({x, rows});
    context->saved_data["type"] = weight.scalar_type();
    return x.mm(rows.t()).narrow(1, 0, outputs);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("linear");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &rows = saved[1], &gradient = gradients[0];
    const at::Tensor wide = widened(gradient, rows.size(0));
    variable_list result(2);
    if (context->needs_input_grad(0)) result[0] = wide.mm(rows);
    if (context->needs_input_grad(1)) {
      result[1] = wide.t()
                      .mm(x)
                      .narrow(0, 0, gradient.size(1))
                      .to(context->saved_data["type"].toScalarType());
    }
    return result;
  }
};

}  // namespace

bool has_aligned_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!x.is_cuda() || bias.defined() || weight.dim() != 2 || x.dim() < 2) return false;
  const at::ScalarType type = type_of_product(x);
  const int64_t outputs = weight.size(0);
  return type == type_of_product(weight) && outputs >= kManyOutputs && x.size(-1) > 0 &&
         x.numel() / x.size(-1) >= kManyRows &&
         outputs * static_cast<int64_t>(c10::elementSize(type)) % kUnitBytes != 0;
}

at::Tensor aligned_linear(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor y = AlignedLinear::apply(rows_of(x, type_of_product(x)), weight);
  if (x.dim() == 2) return y;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return y.view(sizes);
}

}  // namespace brim::nn
