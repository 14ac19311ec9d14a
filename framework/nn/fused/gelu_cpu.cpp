// Rows of channels are cut into pieces for the threads here; what is done with a row is
// loops/gelu.cpp's.
#include "framework/nn/fused/gelu_cpu.h"

#include <ATen/ops/empty_like.h>

#include "framework/nn/fused/loops/gelu.h"

namespace brim::nn::cpu {
namespace {

using loops::GeluForm;

GeluForm form_of(bool tanh) { return tanh ? GeluForm::kTanh : GeluForm::kErf; }

void check(const at::Tensor& x, const at::Tensor& bias) {
  TORCH_CHECK(x.dim() > 0 && x.numel() > 0 && x.is_contiguous(),
              "bias_gelu: expected x [..., C] without gaps, found ", x.sizes(), " with strides ",
              x.strides());
  const at::ScalarType type = opmath_type(x);
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == x.size(-1) && bias.scalar_type() == type &&
                  bias.is_contiguous(),
              "bias_gelu: expected a bias ", type, " [", x.size(-1), "], found ",
              bias.scalar_type(), " ", bias.sizes());
}

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, bool tanh) {
  check(x, bias);
  at::Tensor y = at::empty_like(x);
  with_format_of("bias_gelu", x, [&]<class S>() {
    const loops::GeluLoops<S>& loop = loops::gelu_loops<S>();
    const S* in = data<S>(x);
    S* out = writable<S>(y);
    const auto* added = data<Wide<S>>(bias);
    Pieces(rows_of(x)).for_each([&](int64_t, Rows rows, int64_t offset) {
      loop.forward(form_of(tanh), rows, in + offset, added, out + offset);
    });
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& gradient,
                                                      const at::Tensor& x, const at::Tensor& bias,
                                                      bool tanh) {
  check(x, bias);
  TORCH_CHECK(gradient.sizes() == x.sizes() && gradient.scalar_type() == x.scalar_type() &&
                  gradient.is_contiguous(),
              "bias_gelu: expected a gradient like x, ", x.scalar_type(), " ", x.sizes(),
              ", found ", gradient.scalar_type(), " ", gradient.sizes(), " with strides ",
              gradient.strides());
  at::Tensor x_gradient = at::empty_like(x);
  at::Tensor bias_gradient = at::empty_like(bias);
  with_format_of("bias_gelu", x, [&]<class S>() {
    using W = Wide<S>;
    const loops::GeluLoops<S>& loop = loops::gelu_loops<S>();
    const S* in = data<S>(x);
    const S* of_y = data<S>(gradient);
    S* out = writable<S>(x_gradient);
    const W* added = data<W>(bias);
    const Pieces pieces(rows_of(x));
    ChannelSums sums(pieces, 1);
    pieces.for_each([&](int64_t piece, Rows rows, int64_t offset) {
      loop.backward(form_of(tanh), rows, of_y + offset, in + offset, added, out + offset,
                    sums.of(0, piece));
    });
    sums.add_up();
    W* of_bias = writable<W>(bias_gradient);
    for (int64_t c = 0; c < x.size(-1); ++c) of_bias[c] = static_cast<W>(sums.of(0)[c]);
  });
  return {x_gradient, bias_gradient};
}

}  // namespace brim::nn::cpu
