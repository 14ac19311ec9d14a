// Rows are cut into pieces for the threads here; what is done with a row is loops/layer_norm.cpp's.
#include "framework/nn/fused/layer_norm_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "framework/nn/fused/loops/layer_norm.h"

namespace brim::nn::cpu {
namespace {

void check_like(const char* what, const at::Tensor& tensor, const at::Tensor& x,
                at::ScalarType type) {
  TORCH_CHECK(tensor.sizes() == x.sizes() && tensor.scalar_type() == type && tensor.is_contiguous(),
              "layer_norm: expected ", what, " ", type, " ", x.sizes(), " without gaps, found ",
              tensor.scalar_type(), " ", tensor.sizes(), " with strides ", tensor.strides());
}

void check_vector(const char* what, const at::Tensor& tensor, int64_t size, const at::Tensor& x) {
  TORCH_CHECK(
      tensor.numel() == size && tensor.scalar_type() == opmath_type(x) && tensor.is_contiguous(),
      "layer_norm: expected ", what, " ", opmath_type(x), " [", size, "], found ",
      tensor.scalar_type(), " ", tensor.sizes());
}

void check_x(const at::Tensor& x) {
  TORCH_CHECK(x.dim() > 0 && x.numel() > 0, "layer_norm: expected x [..., C], found ", x.sizes());
  check_like("x", x, x, x.scalar_type());
}

/// f.operator()<X, Y>() for the stored formats of x and of the norm.
template <class F>
auto with_formats_of(const at::Tensor& x, at::ScalarType type, const F& f) {
  using loops::BFloat16;
  const at::ScalarType own = x.scalar_type();
  if (own == at::kFloat && type == at::kFloat) return f.template operator()<float, float>();
  if (own == at::kFloat && type == at::kBFloat16) return f.template operator()<float, BFloat16>();
  if (own == at::kDouble && type == own) return f.template operator()<double, double>();
  if (own == at::kBFloat16 && type == own) return f.template operator()<BFloat16, BFloat16>();
  TORCH_CHECK(false,
              "layer_norm: expected float32, float64 or bfloat16, or a norm in bfloat16 of "
              "float32, found a norm in ",
              type, " of ", own);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm(
    const at::Tensor& x, const MaybeTensor& branch, const at::Tensor& weight,
    const at::Tensor& bias, double eps, at::ScalarType type) {
  check_x(x);
  check_vector("a weight", weight, x.size(-1), x);
  check_vector("a bias", bias, x.size(-1), x);
  if (branch) check_like("a branch", *branch, x, type);
  const Rows all = rows_of(x);
  at::Tensor sum = branch ? at::empty_like(x) : at::Tensor();
  at::Tensor norm = at::empty(x.sizes(), x.options().dtype(type));
  at::Tensor mean = at::empty({all.count}, weight.options());
  at::Tensor inverse_std = at::empty({all.count}, weight.options());
  with_formats_of(x, type, [&]<class X, class Y>() {
    using W = Wide<X>;
    const loops::LayerNormLoops<X, Y>& loop = loops::layer_norm_loops<X, Y>();
    const X* in = data<X>(x);
    const Y* added = data<Y>(branch);
    X* sums = branch ? writable<X>(sum) : nullptr;
    W* means = writable<W>(mean);
    W* inverses = writable<W>(inverse_std);
    Y* out = writable<Y>(norm);
    at::parallel_for(0, all.count, grain_of(all.channels), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * all.channels;
      loop.forward({end - begin, all.channels}, {.x = in + at,
                                                 .branch = added == nullptr ? nullptr : added + at,
                                                 .weight = data<W>(weight),
                                                 .bias = data<W>(bias),
                                                 .eps = eps,
                                                 .sum = sums == nullptr ? nullptr : sums + at,
                                                 .mean = means + begin,
                                                 .inverse_std = inverses + begin,
                                                 .y = out + at});
    });
  });
  return {sum, norm, mean, inverse_std};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& sum_gradient, const at::Tensor& sum,
    const at::Tensor& mean, const at::Tensor& inverse_std, const at::Tensor& weight,
    bool has_branch) {
  check_x(sum);
  const at::ScalarType type = gradient.scalar_type();
  check_like("a gradient", gradient, sum, type);
  if (sum_gradient) check_like("a gradient of the sum", *sum_gradient, sum, sum.scalar_type());
  const Rows all = rows_of(sum);
  check_vector("a weight", weight, all.channels, sum);
  check_vector("means", mean, all.count, sum);
  check_vector("1 / std", inverse_std, all.count, sum);
  const bool has_own = has_branch && type != sum.scalar_type();
  at::Tensor x_gradient = at::empty_like(sum);
  at::Tensor branch_gradient = has_own ? at::empty_like(gradient) : at::Tensor();
  at::Tensor weight_gradient = at::empty_like(weight);
  at::Tensor bias_gradient = at::empty_like(weight);
  with_formats_of(sum, type, [&]<class X, class Y>() {
    using W = Wide<X>;
    const loops::LayerNormLoops<X, Y>& loop = loops::layer_norm_loops<X, Y>();
    const Pieces pieces(all);
    ChannelSums sums(pieces, 2);
    const at::Tensor scratch = at::empty({pieces.count(), 2, all.channels}, weight.options());
    const Y* of_norm = data<Y>(gradient);
    const X* of_sum = data<X>(sum_gradient);
    const X* in = data<X>(sum);
    X* out = writable<X>(x_gradient);
    Y* copy = has_own ? writable<Y>(branch_gradient) : nullptr;
    W* work = writable<W>(scratch);
    pieces.for_each([&](int64_t piece, Rows rows, int64_t offset) {
      const int64_t row = offset / all.channels;
      loop.backward(rows, {.gradient = of_norm + offset,
                           .sum_gradient = of_sum == nullptr ? nullptr : of_sum + offset,
                           .sum = in + offset,
                           .mean = data<W>(mean) + row,
                           .inverse_std = data<W>(inverse_std) + row,
                           .weight = data<W>(weight),
                           .x_gradient = out + offset,
                           .branch_gradient = copy == nullptr ? nullptr : copy + offset,
                           .scratch = work + piece * 2 * all.channels,
                           .weight_sum = sums.of(0, piece),
                           .bias_sum = sums.of(1, piece)});
    });
    sums.add_up();
    W* of_weight = writable<W>(weight_gradient);
    W* of_bias = writable<W>(bias_gradient);
    for (int64_t c = 0; c < all.channels; ++c) {
      of_weight[c] = static_cast<W>(sums.of(0)[c]);
      of_bias[c] = static_cast<W>(sums.of(1)[c]);
    }
  });
  return {x_gradient, branch_gradient, weight_gradient, bias_gradient};
}

}  // namespace brim::nn::cpu
