// BRIM_ISA is the name of the instruction set that this file is being compiled for. Sums keep a
// channel's running values in a tile on the stack. Short rows are taken four at a time, so that the
// tile and the channel's factors are read once for four values; long ones one by one, since a CPU
// foresees what is read from memory in order, not what is read from four places in turn.
#include "framework/nn/fused/loops/batch_norm.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

Table<BatchNormLoops> batch_norm_table();

namespace {

constexpr int64_t kTile = 2048;        // channels summed at once, on the stack
constexpr int64_t kRowsAtOnce = 64;    // rows summed in T's wide type before float64 takes over
constexpr int64_t kShortBytes = 512;   // of four rows that are read as one piece
constexpr int64_t kAheadBytes = 4096;  // how far ahead loops that only read ask for memory

template <int kCount>
struct Count {};

/// To be called for each vector of a row that is read alone. It may lie behind the tensor's end.
template <class T>
BRIM_INLINE void read_ahead(const T* from) {
  __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
}

/// A tile's sums of a few rows, and their way into the sums of all.
template <class T>
struct TileSums {
  Wide<T> first[kTile];
  Wide<T> second[kTile];

  explicit TileSums(int64_t channels) {
    for (int64_t c = 0; c < channels; ++c) first[c] = second[c] = 0;
  }
  void add_to(int64_t channels, double* sum, double* other) const {
    for (int64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>(first[c]);
    for (int64_t c = 0; c < channels; ++c) other[c] += static_cast<double>(second[c]);
  }
};

/// For each tile calls begin(first channel, channels) → sums, f(sums, offset of a first value,
/// channel, channels, Count<4> or Count<1> rows), end(sums, …).
template <class T, class F>
[[gnu::always_inline]] inline void sum_up(Rows rows, double* sum, double* other, const F& f) {
  const bool are_short = 4 * rows.channels * static_cast<int64_t>(sizeof(T)) <= kShortBytes;
  for (int64_t channel = 0; channel < rows.channels; channel += kTile) {
    const int64_t channels = rows.channels - channel < kTile ? rows.channels - channel : kTile;
    for (int64_t row = 0; row < rows.count; row += kRowsAtOnce) {
      const int64_t end = rows.count - row < kRowsAtOnce ? rows.count : row + kRowsAtOnce;
      TileSums<T> sums(channels);
      int64_t r = row;
      for (; are_short && r + 4 <= end; r += 4)
        f(sums, r * rows.channels + channel, channel, channels, Count<4>());
      for (; r < end; ++r) f(sums, r * rows.channels + channel, channel, channels, Count<1>());
      sums.add_to(channels, sum + channel, other + channel);
    }
  }
}

template <class T>
void moments(Rows rows, const T* x, const Wide<T>* shift, double* sum, double* squares) {
  using W = Wide<T>;
  sum_up<T>(rows, sum, squares,
            [&]<int kCount>(TileSums<T>& sums, int64_t at, int64_t channel, int64_t channels,
                            Count<kCount>) {
              for_each_vector<W>(channels, [&](int64_t c, auto part) {
                const Vector<T> from = load(shift + channel + c, part);
                Vector<T> first = load(sums.first + c, part), second = load(sums.second + c, part);
#pragma GCC unroll 4
                for (int r = 0; r < kCount; ++r) {
                  if constexpr (kCount == 1) read_ahead(x + at + c);
                  const Vector<T> value = load(x + at + r * rows.channels + c, part) - from;
                  first += value;
                  second += value * value;
                }
                store(first, sums.first + c, part);
                store(second, sums.second + c, part);
              });
            });
}

template <class T, bool kResidual, bool kRelu>
void normalise_as(Rows rows, const T* x, const T* residual, Factors<T> factors, T* y) {
  using W = Wide<T>;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t at = r * rows.channels;
    for_each_vector<W>(rows.channels, [&](int64_t c, auto part) {
      Vector<T> value =
          (load(x + at + c, part) - load(factors.mean + c, part)) * load(factors.scale + c, part) +
          load(factors.bias + c, part);
      if constexpr (kResidual) value += load(residual + at + c, part);
      if constexpr (kRelu) value = value < 0 ? Vector<T>{} : value;  // not-a-number stays it
      store(value, y + at + c, part);
    });
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
  using W = Wide<T>;
  sum_up<T>(rows, sum, products,
            [&]<int kCount>(TileSums<T>& sums, int64_t at, int64_t channel, int64_t channels,
                            Count<kCount>) {
              for_each_vector<W>(channels, [&](int64_t c, auto part) {
                const Vector<T> mean = load(in.factors.mean + channel + c, part);
                Vector<T> scale, bias;
                if constexpr (kMask == Mask::kFromInput) {
                  scale = load(in.factors.scale + channel + c, part);
                  bias = load(in.factors.bias + channel + c, part);
                }
                Vector<T> first = load(sums.first + c, part), second = load(sums.second + c, part);
#pragma GCC unroll 4
                for (int r = 0; r < kCount; ++r) {
                  const int64_t i = at + r * rows.channels + c;
                  if constexpr (kCount == 1 && !kStore) {
                    read_ahead(in.x + i);
                    read_ahead(in.gradient + i);
                    if constexpr (kMask == Mask::kFromOutput) read_ahead(in.y + i);
                  }
                  const Vector<T> centred = load(in.x + i, part) - mean;
                  Vector<T> g = load(in.gradient + i, part);
                  if constexpr (kMask == Mask::kFromInput) {
                    g = centred * scale + bias <= 0 ? Vector<T>{} : g;
                  } else if constexpr (kMask == Mask::kFromOutput) {
                    g = load(in.y + i, part) <= 0 ? Vector<T>{} : g;
                  }
                  if constexpr (kStore) store(g, masked + i, part);
                  first += g;
                  second += g * centred;
                }
                store(first, sums.first + c, part);
                store(second, sums.second + c, part);
              });
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
void input_gradient_as(Rows rows, const BackwardInputs<T>& in, const Wide<T>* slope,
                       const Wide<T>* offset, T* x_gradient) {
  using W = Wide<T>;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t at = r * rows.channels;
    for_each_vector<W>(rows.channels, [&](int64_t c, auto part) {
      const Vector<T> scale = load(in.factors.scale + c, part);
      const Vector<T> centred = load(in.x + at + c, part) - load(in.factors.mean + c, part);
      Vector<T> g = load(in.gradient + at + c, part);
      if constexpr (kMasked) {
        g = centred * scale + load(in.factors.bias + c, part) <= 0 ? Vector<T>{} : g;
      }
      store(scale * g + (load(slope + c, part) * centred + load(offset + c, part)),
            x_gradient + at + c, part);
    });
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

Table<BatchNormLoops> batch_norm_table() {
  return {loops<float>(), loops<double>(), loops<BFloat16>()};
}

}  // namespace brim::nn::loops::BRIM_ISA
