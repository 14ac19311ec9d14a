// BRIM_ISA is the name of the instruction set that this file is being compiled for. A row stays in
// the first cache while it is gone over several times.
#include "framework/nn/fused/loops/layer_norm.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

LayerNormTable layer_norm_table();

namespace {

constexpr int64_t kRowsAtOnce = 64;  // rows summed in W before float64 takes over

/// Σ term(index, Whole or PartialVector) over n values, in several sums: one addition waits for the
/// one before it.
template <class W, class F>
[[gnu::always_inline]] inline W sum_of(int64_t n, const F& term) {
  constexpr int kSums = 4;
  constexpr int64_t kCount = kLanes<W>;
  using V = decltype(term(0, Whole()));
  V sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kCount <= n; i += kSums * kCount) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) sums[s] += term(i + s * kCount, Whole());
  }
  V sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for_each_vector<W>(n - i, [&](int64_t c, auto part) { sum += term(i + c, part); });
  return sum_of_lanes<W>(sum);
}

/// The mean of a row.
template <class X>
Wide<X> mean_of(const X* x, int64_t count) {
  using W = Wide<X>;
  return sum_of<W>(count, [&](int64_t c, auto part) { return load(x + c, part); }) /
         static_cast<W>(count);
}

/// Σ (x - mean)² of a row.
template <class X>
Wide<X> squares_about(Wide<X> mean, const X* x, int64_t count) {
  return sum_of<Wide<X>>(count, [&](int64_t c, auto part) {
    const Vector<X> centred = load(x + c, part, mean) - mean;
    return centred * centred;
  });
}

template <class X, class Y>
void forward(Rows rows, typename LayerNormLoops<X, Y>::Forward in) {
  using W = Wide<X>;
  const int64_t channels = rows.channels;
  for (int64_t r = 0; r < rows.count; ++r) {
    const X* x = in.x + r * channels;
    if (in.branch != nullptr) {
      const Y* branch = in.branch + r * channels;
      X* sum = in.sum + r * channels;
      for_each_vector<W>(channels, [&](int64_t c, auto part) {
        store(load(x + c, part) + load(branch + c, part), sum + c, part);
      });
      x = sum;
    }
    const W mean = mean_of(x, channels);
    const W variance = squares_about(mean, x, channels) / static_cast<W>(channels);
    const W inverse_std =
        static_cast<W>(1 / __builtin_sqrt(static_cast<double>(variance) + in.eps));
    in.mean[r] = mean;
    in.inverse_std[r] = inverse_std;
    Y* y = in.y + r * channels;
    // Memory rests while a row is gone over, unless the next one is asked for.
    const X* const next = in.x + (r + 1) * channels;
    const Y* const next_branch = in.branch == nullptr ? nullptr : in.branch + (r + 1) * channels;
    for_each_vector<W>(channels, [&](int64_t c, auto part) {
      __builtin_prefetch(next + c);
      if (next_branch != nullptr) __builtin_prefetch(next_branch + c);
      const Vector<X> normal = (load(x + c, part) - mean) * inverse_std;
      store(normal * load(in.weight + c, part) + load(in.bias + c, part), y + c, part);
    });
  }
}

/// A row's Σ g · weight and Σ g · weight · normal, over C; g and g · normal are added to the sums.
template <class X, class Y>
void add_row(int64_t channels, const typename LayerNormLoops<X, Y>::Backward& in, int64_t row,
             Wide<X>* slopes) {
  using W = Wide<X>;
  const Y* gradient = in.gradient + row * channels;
  const X* x = in.sum + row * channels;
  const W mean = in.mean[row], inverse_std = in.inverse_std[row];
  W* weight_sum = in.scratch;
  W* bias_sum = in.scratch + channels;
  Vector<X> sum = {}, product = {};
  for_each_vector<W>(channels, [&](int64_t c, auto part) {
    const Vector<X> g = load(gradient + c, part);
    const Vector<X> normal = (load(x + c, part) - mean) * inverse_std;
    const Vector<X> scaled = g * load(in.weight + c, part);
    sum += scaled;
    product += scaled * normal;
    store(load(weight_sum + c, part) + g * normal, weight_sum + c, part);
    store(load(bias_sum + c, part) + g, bias_sum + c, part);
  });
  slopes[0] = sum_of_lanes<W>(sum) / static_cast<W>(channels);
  slopes[1] = sum_of_lanes<W>(product) / static_cast<W>(channels);
}

template <class X, class Y>
void row_gradient(int64_t channels, const typename LayerNormLoops<X, Y>::Backward& in, int64_t row,
                  const Wide<X>* slopes) {
  using W = Wide<X>;
  const Y* gradient = in.gradient + row * channels;
  const X* x = in.sum + row * channels;
  const X* other = in.sum_gradient == nullptr ? nullptr : in.sum_gradient + row * channels;
  X* result = in.x_gradient + row * channels;
  Y* copy = in.branch_gradient == nullptr ? nullptr : in.branch_gradient + row * channels;
  const W mean = in.mean[row], inverse_std = in.inverse_std[row];
  const W offset = slopes[0], slope = slopes[1];
  for_each_vector<W>(channels, [&](int64_t c, auto part) {
    __builtin_prefetch(gradient + channels + c);  // of the next row, as in forward()
    __builtin_prefetch(x + channels + c);
    const Vector<X> normal = (load(x + c, part) - mean) * inverse_std;
    const Vector<X> scaled = load(gradient + c, part) * load(in.weight + c, part);
    Vector<X> value = (scaled - offset - normal * slope) * inverse_std;
    if (other != nullptr) value += load(other + c, part);
    store(value, result + c, part);
    if (copy != nullptr) store(value, copy + c, part);
  });
}

template <class X, class Y>
void backward(Rows rows, typename LayerNormLoops<X, Y>::Backward in) {
  using W = Wide<X>;
  const int64_t channels = rows.channels;
  for (int64_t row = 0; row < rows.count; row += kRowsAtOnce) {
    const int64_t end = rows.count - row < kRowsAtOnce ? rows.count : row + kRowsAtOnce;
    for (int64_t c = 0; c < 2 * channels; ++c) in.scratch[c] = 0;
    for (int64_t r = row; r < end; ++r) {
      W slopes[2];
      add_row<X, Y>(channels, in, r, slopes);
      row_gradient<X, Y>(channels, in, r, slopes);
    }
    for (int64_t c = 0; c < channels; ++c) {
      in.weight_sum[c] += static_cast<double>(in.scratch[c]);
      in.bias_sum[c] += static_cast<double>(in.scratch[channels + c]);
    }
  }
}

template <class X, class Y>
LayerNormLoops<X, Y> loops() {
  return {forward<X, Y>, backward<X, Y>};
}

}  // namespace

LayerNormTable layer_norm_table() {
  return {loops<float, float>(), loops<double, double>(), loops<BFloat16, BFloat16>(),
          loops<float, BFloat16>()};
}

}  // namespace brim::nn::loops::BRIM_ISA
