// Rows of channels are cut into pieces for the threads here; what is done with a row is
// loops/batch_norm.cpp's.
#include "framework/nn/fused/batch_norm_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/nn/fused/cpu.h"
#include "framework/nn/fused/loops/batch_norm.h"

namespace brim::nn::cpu {
namespace {

using loops::BackwardInputs;
using loops::Factors;
using loops::Mask;

constexpr int64_t kShiftRows = 16;

Rows pixel_rows_of(const at::Tensor& x) { return {x.numel() / x.size(1), x.size(1)}; }

/// A value near each channel's mean, from its first rows: sums of squares about it lose no digits.
template <class S>
void near_means(Rows rows, const S* x, Wide<S>* shift) {
  const int64_t count = std::min(rows.count, kShiftRows);
  std::vector<double> sums(static_cast<size_t>(rows.channels));
  for (int64_t r = 0; r < count; ++r, x += rows.channels) {
    for (int64_t c = 0; c < rows.channels; ++c) {
      sums[static_cast<size_t>(c)] += static_cast<double>(loops::wide(x[c]));
    }
  }
  for (int64_t c = 0; c < rows.channels; ++c) {
    shift[c] = static_cast<Wide<S>>(sums[static_cast<size_t>(c)] / static_cast<double>(count));
  }
}

template <class T>
struct Statistics {
  at::Tensor mean, inverse_std;  // [C]
};

/// f(channel, mean, biased variance), in the channels' order.
template <class S, class F>
void for_each_moments(const Pieces& pieces, const at::Tensor& x, const F& f) {
  const loops::BatchNormLoops<S>& loop = loops::batch_norm_loops<S>();
  const Rows rows = pieces.all();
  std::vector<Wide<S>> shift(static_cast<size_t>(rows.channels));
  const S* values = data<S>(x);
  near_means(rows, values, shift.data());
  ChannelSums sums(pieces, 2);
  pieces.for_each([&](int64_t piece, Rows part, int64_t offset) {
    loop.moments(part, values + offset, shift.data(), sums.of(0, piece), sums.of(1, piece));
  });
  sums.add_up();
  const auto n = static_cast<double>(rows.count);
  for (int64_t c = 0; c < rows.channels; ++c) {
    const double distance = sums.of(0)[c] / n;
    const double squares = sums.of(1)[c] - n * distance * distance;
    f(c, static_cast<double>(shift[static_cast<size_t>(c)]) + distance,
      squares < 0 ? 0 : squares / n);  // not-a-number stays it
  }
}

/// The batch's statistics; the running ones move towards them.
template <class S>
Statistics<S> take_statistics(const Pieces& pieces, const at::Tensor& x, at::Tensor& running_mean,
                              at::Tensor& running_var, double momentum, double eps) {
  using W = Wide<S>;
  const Rows rows = pieces.all();
  Statistics<S> result = {at::empty({rows.channels}, running_mean.options()),
                          at::empty({rows.channels}, running_mean.options())};
  W* mean = writable<W>(result.mean);
  W* inverse_std = writable<W>(result.inverse_std);
  const auto n = static_cast<double>(rows.count);
  W* old_mean = writable<W>(running_mean);
  W* old_var = writable<W>(running_var);
  for_each_moments<S>(pieces, x, [&](int64_t c, double exact_mean, double variance) {
    mean[c] = static_cast<W>(exact_mean);
    inverse_std[c] = static_cast<W>(1 / std::sqrt(variance + eps));
    if (momentum == 0) return;
    const double unbiased = variance * n / (n - 1);
    old_mean[c] = static_cast<W>(momentum * exact_mean + (1 - momentum) * old_mean[c]);
    old_var[c] = static_cast<W>(momentum * unbiased + (1 - momentum) * old_var[c]);
  });
  return result;
}

template <class S>
void normalise(const Pieces& pieces, const at::Tensor& x, const MaybeTensor& residual,
               Factors<S> factors, bool relu, const at::Tensor& y) {
  const loops::BatchNormLoops<S>& loop = loops::batch_norm_loops<S>();
  const S* values = data<S>(x);
  const S* added = data<S>(residual);
  S* out = writable<S>(y);
  pieces.for_each([&](int64_t, Rows part, int64_t offset) {
    loop.normalise(part, values + offset, added == nullptr ? nullptr : added + offset, factors,
                   relu, out + offset);
  });
}

template <class S>
at::Tensor forward_as(const at::Tensor& x, const MaybeTensor& residual, const at::Tensor& weight,
                      const at::Tensor& bias, bool relu, const Statistics<S>& statistics) {
  using W = Wide<S>;
  const Pieces pieces(pixel_rows_of(x));
  const at::Tensor scale = weight.mul(statistics.inverse_std);
  at::Tensor y = at::empty_like(x, at::MemoryFormat::ChannelsLast);
  normalise<S>(pieces, x, residual, {data<W>(statistics.mean), data<W>(scale), data<W>(bias)}, relu,
               y);
  return y;
}

void check_layout(const char* what, const at::Tensor& tensor, const at::Tensor& x) {
  TORCH_CHECK(tensor.sizes() == x.sizes() && tensor.scalar_type() == x.scalar_type() &&
                  tensor.is_contiguous(at::MemoryFormat::ChannelsLast),
              "batch_norm: expected ", what, " in channels_last like x, ", x.scalar_type(), " ",
              x.sizes(), ", found ", tensor.scalar_type(), " ", tensor.sizes(), " with strides ",
              tensor.strides());
}

void check(const at::Tensor& x, std::initializer_list<const at::Tensor*> of_channels) {
  TORCH_CHECK(x.dim() == 4 && x.numel() > 0, "batch_norm: expected x [N, C, H, W], found ",
              x.sizes());
  check_layout("x", x, x);
  const at::ScalarType type = opmath_type(x);
  for (const at::Tensor* t : of_channels) {
    TORCH_CHECK(
        t->dim() == 1 && t->size(0) == x.size(1) && t->scalar_type() == type && t->is_contiguous(),
        "batch_norm: expected ", type, " [", x.size(1), "] for each channel, found ",
        t->scalar_type(), " ", t->sizes());
  }
}

template <class S>
BackwardInputs<S> moved(BackwardInputs<S> all, int64_t offset) {
  all.gradient += offset;
  all.x += offset;
  if (all.y != nullptr) all.y += offset;
  return all;
}

/// Of each channel the sums of the gradient and of its product with x - mean; `masked`, where it is
/// not null, gets the gradient that the ReLU lets through.
template <class S>
void sum_gradients(const Pieces& pieces, const BackwardInputs<S>& inputs, S* masked,
                   ChannelSums& sums) {
  const loops::BatchNormLoops<S>& loop = loops::batch_norm_loops<S>();
  pieces.for_each([&](int64_t piece, Rows part, int64_t offset) {
    loop.gradient_sums(part, moved(inputs, offset), masked == nullptr ? nullptr : masked + offset,
                       sums.of(0, piece), sums.of(1, piece));
  });
  sums.add_up();
}

template <class S>
at::Tensor input_gradient(const Pieces& pieces, const BackwardInputs<S>& inputs,
                          const at::Tensor& x, const Wide<S>* slope, const Wide<S>* offset) {
  const loops::BatchNormLoops<S>& loop = loops::batch_norm_loops<S>();
  at::Tensor x_gradient = at::empty_like(x, at::MemoryFormat::ChannelsLast);
  S* out = writable<S>(x_gradient);
  pieces.for_each([&](int64_t, Rows part, int64_t at) {
    loop.input_gradient(part, moved(inputs, at), slope, offset, out + at);
  });
  return x_gradient;
}

template <class S>
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_as(
    BackwardInputs<S> inputs, const at::Tensor& x, const at::Tensor& inverse_std,
    bool has_residual) {
  using W = Wide<S>;
  const Pieces pieces(pixel_rows_of(x));
  const int64_t channels = x.size(1);
  at::Tensor residual_gradient =
      has_residual ? at::empty_like(x, at::MemoryFormat::ChannelsLast) : at::Tensor();
  S* masked = has_residual ? writable<S>(residual_gradient) : nullptr;
  ChannelSums sums(pieces, 2);
  sum_gradients(pieces, inputs, masked, sums);

  at::Tensor weight_gradient = at::empty({channels}, inverse_std.options());
  at::Tensor bias_gradient = at::empty({channels}, inverse_std.options());
  const at::Tensor slopes = at::empty({2, channels}, inverse_std.options());
  W* slope = writable<W>(slopes);
  W* offset = slope + channels;
  const W* all_inverse_std = data<W>(inverse_std);
  W* of_weight = writable<W>(weight_gradient);
  W* of_bias = writable<W>(bias_gradient);
  const auto n = static_cast<double>(pieces.all().count);
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = inputs.factors.scale[c], over_std = all_inverse_std[c];
    const double sum = sums.of(0)[c], product = sums.of(1)[c];
    of_weight[c] = static_cast<W>(product * over_std);
    of_bias[c] = static_cast<W>(sum);
    slope[c] = static_cast<W>(-scale * over_std * over_std * product / n);
    offset[c] = static_cast<W>(-scale * sum / n);
  }

  if (has_residual) {  // masked by now
    inputs.gradient = masked;
    inputs.mask = Mask::kNone;
  }
  return {input_gradient(pieces, inputs, x, slope, offset), residual_gradient, weight_gradient,
          bias_gradient};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& x, const MaybeTensor& residual, const at::Tensor& weight,
    const at::Tensor& bias, at::Tensor& running_mean, at::Tensor& running_var, double momentum,
    double eps, bool relu) {
  check(x, {&weight, &bias, &running_mean, &running_var});
  if (residual) check_layout("a residual", *residual, x);
  return with_format_of(
      "batch_norm", x, [&]<class S>() -> std::tuple<at::Tensor, at::Tensor, at::Tensor> {
        const Statistics<S> statistics = take_statistics<S>(
            Pieces(pixel_rows_of(x)), x, running_mean, running_var, momentum, eps);
        return {forward_as<S>(x, residual, weight, bias, relu, statistics), statistics.mean,
                statistics.inverse_std};
      });
}

at::Tensor batch_norm_apply(const at::Tensor& x, const MaybeTensor& residual,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& inverse_std, bool relu) {
  check(x, {&weight, &bias, &mean, &inverse_std});
  if (residual) check_layout("a residual", *residual, x);
  return with_format_of("batch_norm", x, [&]<class S>() {
    return forward_as<S>(x, residual, weight, bias, relu, {mean, inverse_std});
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor& gradient, const MaybeTensor& more, const at::Tensor& x, const MaybeTensor& y,
    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
    const at::Tensor& inverse_std, bool relu, bool has_residual) {
  check(x, {&weight, &bias, &mean, &inverse_std});
  check_layout("the gradient", gradient, x);
  if (more) {
    check_layout("the rest of the gradient", *more, x);
    return batch_norm_backward(gradient.add(*more), std::nullopt, x, y, weight, bias, mean,
                               inverse_std, relu, has_residual);
  }
  const bool by_output = relu && has_residual;
  TORCH_CHECK(!by_output || y.has_value(), "batch_norm: a residual's gradient needs the result");
  if (by_output) check_layout("the result", *y, x);
  const at::Tensor scale = weight.mul(inverse_std);
  return with_format_of("batch_norm", x, [&]<class S>() {
    using W = Wide<S>;
    const Mask mask = by_output ? Mask::kFromOutput : relu ? Mask::kFromInput : Mask::kNone;
    return backward_as<S>({data<S>(gradient),
                           data<S>(x),
                           by_output ? data<S>(*y) : nullptr,
                           {data<W>(mean), data<W>(scale), data<W>(bias)},
                           mask},
                          x, inverse_std, has_residual);
  });
}

at::Tensor batch_norm_moments(const at::Tensor& x) {
  check(x, {});
  const at::Tensor moments = at::empty({2, x.size(1)}, x.options().dtype(at::kDouble));
  double* mean = writable<double>(moments);
  double* variance = mean + x.size(1);
  with_format_of("batch_norm", x, [&]<class S>() {
    for_each_moments<S>(Pieces(pixel_rows_of(x)), x, [&](int64_t c, double of_mean, double of_var) {
      mean[c] = of_mean;
      variance[c] = of_var;
    });
    return 0;
  });
  return moments;
}

std::tuple<at::Tensor, at::Tensor> batch_norm_backward_sums(
    const at::Tensor& gradient, const at::Tensor& x, const MaybeTensor& y, const at::Tensor& weight,
    const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_std, bool relu) {
  check(x, {&weight, &bias, &mean, &inverse_std});
  check_layout("the gradient", gradient, x);
  if (y) check_layout("the result", *y, x);
  const at::Tensor scale = weight.mul(inverse_std);
  const at::Tensor totals = at::empty({2, x.size(1)}, x.options().dtype(at::kDouble));
  return with_format_of("batch_norm", x, [&]<class S>() -> std::tuple<at::Tensor, at::Tensor> {
    using W = Wide<S>;
    const Pieces pieces(pixel_rows_of(x));
    const at::Tensor masked =
        relu ? at::empty_like(x, at::MemoryFormat::ChannelsLast) : at::Tensor();
    ChannelSums sums(pieces, 2);
    const Mask mask = !relu ? Mask::kNone : y ? Mask::kFromOutput : Mask::kFromInput;
    sum_gradients<S>(pieces,
                     {data<S>(gradient),
                      data<S>(x),
                      y ? data<S>(*y) : nullptr,
                      {data<W>(mean), data<W>(scale), data<W>(bias)},
                      mask},
                     relu ? writable<S>(masked) : nullptr, sums);
    for (const int which : {0, 1}) {
      std::copy_n(sums.of(which), x.size(1), writable<double>(totals) + which * x.size(1));
    }
    return {totals, masked};
  });
}

at::Tensor batch_norm_backward_apply(const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const at::Tensor& mean,
                                     const at::Tensor& inverse_std, const at::Tensor& slopes) {
  const at::Tensor slope = slopes[0], offset = slopes[1];
  check(x, {&weight, &mean, &inverse_std, &slope, &offset});
  check_layout("the gradient", gradient, x);
  const at::Tensor scale = weight.mul(inverse_std);
  return with_format_of("batch_norm", x, [&]<class S>() {
    using W = Wide<S>;
    return input_gradient<S>(Pieces(pixel_rows_of(x)),
                             {data<S>(gradient),
                              data<S>(x),
                              nullptr,
                              {data<W>(mean), data<W>(scale), data<W>(mean)},
                              Mask::kNone},
                             x, data<W>(slope), data<W>(offset));
  });
}

}  // namespace brim::nn::cpu
