// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/loops/batch_norm.h"

namespace brim::nn::loops::BRIM_ISA {

BatchNormTable batch_norm_table();

namespace {

constexpr int64_t kTile = 256;       // channels summed at once, on the stack
constexpr int64_t kRowsAtOnce = 64;  // rows summed in T's wide type before float64 takes over

/// A tile's sums of a few rows, and their way into the sums of all.
template <class T>
struct TileSums {
  Wide<T> first[kTile] = {};
  Wide<T> second[kTile] = {};

  void add_to(int64_t channels, double* sum, double* other) const {
    for (int64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>(first[c]);
    for (int64_t c = 0; c < channels; ++c) other[c] += static_cast<double>(second[c]);
  }
};

/// Calls f(first row, rows, first channel, channels) for each tile.
template <class F>
void for_each_tile(Rows rows, F f) {
  for (int64_t r = 0; r < rows.count; r += kRowsAtOnce) {
    const int64_t count = rows.count - r < kRowsAtOnce ? rows.count - r : kRowsAtOnce;
    for (int64_t c = 0; c < rows.channels; c += kTile) {
      const int64_t channels = rows.channels - c < kTile ? rows.channels - c : kTile;
      f(r, count, c, channels);
    }
  }
}

template <class T>
void moments(Rows rows, const T* x, const Wide<T>* shift, double* sum, double* squares) {
  for_each_tile(rows, [=](int64_t row, int64_t count, int64_t channel, int64_t channels) {
    TileSums<T> sums;
    const T* at = x + row * rows.channels + channel;
    const Wide<T>* __restrict from = shift + channel;
    int64_t r = 0;
    for (; r + 4 <= count; r += 4, at += 4 * rows.channels) {
      const T* __restrict a = at;
      const T* __restrict b = a + rows.channels;
      const T* __restrict c = b + rows.channels;
      const T* __restrict d = c + rows.channels;
      BRIM_NO_ALIAS
      for (int64_t i = 0; i < channels; ++i) {
        const Wide<T> p = wide(a[i]) - from[i], q = wide(b[i]) - from[i];
        const Wide<T> u = wide(c[i]) - from[i], v = wide(d[i]) - from[i];
        sums.first[i] += (p + q) + (u + v);
        sums.second[i] += (p * p + q * q) + (u * u + v * v);
      }
    }
    for (; r < count; ++r, at += rows.channels) {
      BRIM_NO_ALIAS
      for (int64_t i = 0; i < channels; ++i) {
        const Wide<T> p = wide(at[i]) - from[i];
        sums.first[i] += p;
        sums.second[i] += p * p;
      }
    }
    sums.add_to(channels, sum + channel, squares + channel);
  });
}

template <class T, bool kResidual, bool kRelu>
void normalise_as(Rows rows, const T* x, const T* residual, Factors<T> factors, T* y) {
  const Wide<T>* __restrict mean = factors.mean;
  const Wide<T>* __restrict scale = factors.scale;
  const Wide<T>* __restrict bias = factors.bias;
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* __restrict in = x + r * rows.channels;
    const T* __restrict add = kResidual ? residual + r * rows.channels : nullptr;
    T* __restrict out = y + r * rows.channels;
    BRIM_NO_ALIAS
    for (int64_t c = 0; c < rows.channels; ++c) {
      Wide<T> value = (wide(in[c]) - mean[c]) * scale[c] + bias[c];
      if constexpr (kResidual) value += wide(add[c]);
      if constexpr (kRelu) value = value < 0 ? 0 : value;  // not-a-number stays it
      store(value, out + c);
    }
  }
}

template <class T>
void normalise(Rows rows, const T* x, const T* residual, Factors<T> factors, bool relu, T* y) {
  if (residual != nullptr) {
    relu ? normalise_as<T, true, true>(rows, x, residual, factors, y)
         : normalise_as<T, true, false>(rows, x, residual, factors, y);
  } else {
    relu ? normalise_as<T, false, true>(rows, x, residual, factors, y)
         : normalise_as<T, false, false>(rows, x, residual, factors, y);
  }
}

template <class T, Mask kMask, bool kStore>
void gradient_sums_as(Rows rows, const BackwardInputs<T>& in, T* masked, double* sum,
                      double* products) {
  for_each_tile(rows, [&](int64_t row, int64_t count, int64_t channel, int64_t channels) {
    TileSums<T> sums;
    const Wide<T>* __restrict mean = in.factors.mean + channel;
    const Wide<T>* __restrict scale = in.factors.scale + channel;
    const Wide<T>* __restrict bias = in.factors.bias + channel;
    for (int64_t r = row; r < row + count; ++r) {
      const int64_t at = r * rows.channels + channel;
      const T* __restrict gradient = in.gradient + at;
      const T* __restrict x = in.x + at;
      const T* __restrict y = kMask == Mask::kFromOutput ? in.y + at : nullptr;
      T* __restrict kept = kStore ? masked + at : nullptr;
      BRIM_NO_ALIAS
      for (int64_t c = 0; c < channels; ++c) {
        const Wide<T> centred = wide(x[c]) - mean[c];
        Wide<T> g = wide(gradient[c]);
        if constexpr (kMask == Mask::kFromInput) {
          g = centred * scale[c] + bias[c] <= 0 ? 0 : g;
        } else if constexpr (kMask == Mask::kFromOutput) {
          g = wide(y[c]) <= 0 ? 0 : g;
        }
        if constexpr (kStore) store(g, kept + c);
        sums.first[c] += g;
        sums.second[c] += g * centred;
      }
    }
    sums.add_to(channels, sum + channel, products + channel);
  });
}

template <class T>
void gradient_sums(Rows rows, BackwardInputs<T> in, T* masked, double* sum, double* products) {
  switch (in.mask) {
    case Mask::kNone:
      masked != nullptr ? gradient_sums_as<T, Mask::kNone, true>(rows, in, masked, sum, products)
                        : gradient_sums_as<T, Mask::kNone, false>(rows, in, masked, sum, products);
      return;
    case Mask::kFromInput:
      masked != nullptr
          ? gradient_sums_as<T, Mask::kFromInput, true>(rows, in, masked, sum, products)
          : gradient_sums_as<T, Mask::kFromInput, false>(rows, in, masked, sum, products);
      return;
    case Mask::kFromOutput:
      masked != nullptr
          ? gradient_sums_as<T, Mask::kFromOutput, true>(rows, in, masked, sum, products)
          : gradient_sums_as<T, Mask::kFromOutput, false>(rows, in, masked, sum, products);
      return;
  }
}

template <class T, bool kMasked>
void input_gradient_as(Rows rows, const BackwardInputs<T>& in, const Wide<T>* slopes,
                       const Wide<T>* offsets, T* x_gradient) {
  const Wide<T>* __restrict mean = in.factors.mean;
  const Wide<T>* __restrict scale = in.factors.scale;
  const Wide<T>* __restrict bias = in.factors.bias;
  const Wide<T>* __restrict slope = slopes;
  const Wide<T>* __restrict offset = offsets;
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* __restrict gradient = in.gradient + r * rows.channels;
    const T* __restrict x = in.x + r * rows.channels;
    T* __restrict out = x_gradient + r * rows.channels;
    BRIM_NO_ALIAS
    for (int64_t c = 0; c < rows.channels; ++c) {
      const Wide<T> centred = wide(x[c]) - mean[c];
      Wide<T> g = wide(gradient[c]);
      if constexpr (kMasked) g = centred * scale[c] + bias[c] <= 0 ? 0 : g;
      store(scale[c] * g + (slope[c] * centred + offset[c]), out + c);
    }
  }
}

template <class T>
void input_gradient(Rows rows, BackwardInputs<T> in, const Wide<T>* slope, const Wide<T>* offset,
                    T* x_gradient) {
  in.mask == Mask::kFromInput ? input_gradient_as<T, true>(rows, in, slope, offset, x_gradient)
                              : input_gradient_as<T, false>(rows, in, slope, offset, x_gradient);
}

template <class T>
BatchNormLoops<T> loops() {
  return {moments<T>, normalise<T>, gradient_sums<T>, input_gradient<T>};
}

}  // namespace

BatchNormTable batch_norm_table() { return {loops<float>(), loops<double>(), loops<BFloat16>()}; }

}  // namespace brim::nn::loops::BRIM_ISA
