// The way from the models to the operators, and their gradient.
#include "framework/nn/fused/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>
#include <tuple>

#include "framework/nn/fused/attention_cpu.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/fused/upcast.h"
#include "framework/nn/measured_forms.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Of longer texts and larger heads a core's caches keep too little.
constexpr int64_t kLongest = 2048;
constexpr int64_t kLargestHead = 256;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("self_attention(Tensor qkv, int heads, bool is_causal) -> (Tensor, Tensor)");
  library.def(
      "self_attention_backward(Tensor gradient, Tensor qkv, Tensor out, Tensor log_sums, "
      "int heads, bool is_causal) -> Tensor");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("self_attention", cpu::self_attention);
  library.impl("self_attention_backward", cpu::self_attention_backward);
}

std::tuple<at::Tensor, at::Tensor> self_attention_shapes(const at::Tensor& qkv, int64_t heads,
                                                         bool /*is_causal*/) {
  return {at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options()),
          at::empty({qkv.size(0), heads, qkv.size(1)}, qkv.options().dtype(at::kFloat))};
}

at::Tensor self_attention_backward_shape(const at::Tensor& /*gradient*/, const at::Tensor& qkv,
                                         const at::Tensor& /*out*/, const at::Tensor& /*log_sums*/,
                                         int64_t /*heads*/, bool /*is_causal*/) {
  return at::empty_like(qkv);
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("self_attention", self_attention_shapes);
  library.impl("self_attention_backward", self_attention_backward_shape);
}

using SelfAttentionForward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, bool);
using SelfAttentionBackward = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         const at::Tensor&, int64_t, bool);

/// What is multiplied, of qkv (upcast.h).
at::ScalarType type_of_factors(const at::Tensor& qkv) {
  return upcasts_matmul(qkv, qkv.scalar_type()) ? at::kFloat : qkv.scalar_type();
}

class FusedSelfAttention : public Function<FusedSelfAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, int64_t heads,
                            bool is_causal) {
    const ForwardPass pass;
    static const auto operation = find_operator<SelfAttentionForward>("brim::self_attention");
    const at::Tensor dense = qkv.contiguous();
    const at::ScalarType stored = qkv.scalar_type(), type = type_of_factors(qkv);
    const auto [product, log_sums] = operation.call(dense.to(type), heads, is_causal);
    const at::Tensor out = product.to(stored);
    context->save_for_backward({dense, out, log_sums});
    context->saved_data["type"] = type;
    context->saved_data["heads"] = heads;
    context->saved_data["is_causal"] = is_causal;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("attention");
    static const auto operation =
        find_operator<SelfAttentionBackward>("brim::self_attention_backward");
    const auto saved = context->get_saved_variables();
    const at::ScalarType type = context->saved_data["type"].toScalarType();
    const at::Tensor gradient = operation.call(
        gradients[0].to(type).contiguous(), saved[0].to(type), saved[1].to(type), saved[2],
        context->saved_data["heads"].toInt(), context->saved_data["is_causal"].toBool());
    return {gradient.to(saved[0].scalar_type()), {}, {}};
  }
};

at::Tensor plain_self_attention(const at::Tensor& qkv, const SelfAttention& attention) {
  const int64_t n = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const auto parts = qkv.view({n, length, 3, attention.heads, width / attention.heads})
                         .permute({2, 0, 3, 1, 4})  // [3, N, heads, L, W / heads]
                         .unbind();
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                          attention.dropout, attention.is_causal)
      .transpose(1, 2)
      .reshape({n, length, width});
}

}  // namespace

bool has_fused_self_attention(const at::Tensor& qkv, const SelfAttention& attention) {
  const at::ScalarType type = qkv.scalar_type();
  if (!qkv.is_cpu() || qkv.dim() != 3 || qkv.numel() == 0 || type_of_product(qkv) != type ||
      attention.dropout > 0 || qkv.size(1) > kLongest || qkv.size(2) % (3 * attention.heads) != 0) {
    return false;
  }
  const int64_t size = qkv.size(2) / (3 * attention.heads);
  if (size > kLargestHead) return false;
  return type_of_factors(qkv) == at::kFloat
             ? cpu::multiplies_float_blocks()
             : type == at::kBFloat16 && size % 2 == 0 && cpu::multiplies_bf16_pairs();
}

at::Tensor fused_self_attention(const at::Tensor& qkv, const SelfAttention& attention) {
  return FusedSelfAttention::apply(qkv, attention.heads, attention.is_causal);
}

at::Tensor self_attention(const at::Tensor& qkv, const SelfAttention& attention, Fused when,
                          bool is_training) {
  const auto name = [&] {
    return std::to_string(attention.heads) +
           (attention.is_causal ? " heads of causal attention" : " heads of attention") +
           (type_of_factors(qkv) == qkv.scalar_type() ? "" : ", upcast");
  };
  const bool is_fused = when != Fused::kNever && has_fused_self_attention(qkv, attention) &&
                        takes_fused(
                            when,
                            {.name = name(),
                             .batch = {qkv},
                             .parameters = {},
                             .is_training = is_training,
                             .is_fused_otherwise = false},
                            [&](const auto& in, const auto&) -> variable_list {
                              return {fused_self_attention(in[0], attention)};
                            },
                            [&](const auto& in, const auto&) -> variable_list {
                              return {plain_self_attention(in[0], attention)};
                            });
  return is_fused ? fused_self_attention(qkv, attention) : plain_self_attention(qkv, attention);
}

}  // namespace brim::nn
