// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/depthwise.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

Table<DepthwiseLoops> depthwise_table();

namespace {

constexpr int64_t kTile = 7;  // outputs of a row that are summed up in registers

int64_t row_values(const DepthwiseSide& width, int64_t lanes) {
  const int64_t tiles = (width.out + kTile - 1) / kTile * kTile;
  return ((tiles - 1) * width.stride + width.kernel) * lanes;
}

template <class T>
int64_t scratch_values(const DepthwiseShape& shape) {
  constexpr int64_t kCount = kLanes<Wide<T>>;
  return (shape.height.kernel + 1) * row_values(shape.width, kCount) + shape.taps() * kCount;
}

/// f(Whole or PartialVector) for that many channels.
template <class W, class F>
BRIM_INLINE void with_part(int64_t count, const F& f) {
  if (count == kLanes<W>) {
    f(Whole());
  } else {
    f(PartialVector{static_cast<int>(count)});
  }
}

/// `count` pixels to vectors, `step` vectors apart.
template <class T>
BRIM_INLINE void widen(const DepthwiseShape& shape, int64_t count, int64_t step, const T* from,
                       Wide<T>* to) {
  using W = Wide<T>;
  with_part<W>(shape.count, [&](auto part) {
    for (int64_t i = 0; i < count; ++i) {
      store(load(from + i * shape.channels, part), to + i * step * kLanes<W>, Whole());
    }
  });
}

/// The rows that a row of outputs reads, widened, each once.
template <class T>
class InputRows {
  using W = Wide<T>;

 public:
  InputRows(const DepthwiseShape& shape, const T* x, W* memory)
      : shape_(shape),
        x_(x),
        memory_(memory),
        stride_(row_values(shape.width, kLanes<W>)),
        begin_(shape.width.padding * kLanes<W>) {
    for (int64_t i = 0; i < shape.height.kernel * stride_; ++i) memory_[i] = 0;
    const int64_t behind = stride_ - begin_;
    const int64_t room = (behind / kLanes<W> + shape.width.spread - 1) / shape.width.spread;
    count_ = shape.width.in < room ? shape.width.in : room;
  }

  /// For outputs `out`, a pointer for each row of the kernel; null where it meets zeros alone.
  /// Calls follow with rising `out`.
  void find(int64_t out, const W* (&rows)[kHighestKernel]) {
    const DepthwiseSide& height = shape_.height;
    for (int64_t k = 0; k < height.kernel; ++k) {
      const int64_t place = out * height.stride - height.padding + k;
      const int64_t row = place / height.spread;
      const bool is_there = place >= 0 && place % height.spread == 0 && row < height.in;
      W* const widened = memory_ + (place < 0 ? 0 : place % height.kernel) * stride_;
      rows[k] = is_there ? widened : nullptr;
      if (!is_there || place < next_) continue;
      next_ = place + 1;
      widen(shape_, count_, shape_.width.spread, x_ + row * shape_.width.in * shape_.channels,
            widened + begin_);
    }
  }

 private:
  const DepthwiseShape& shape_;
  const T* x_;
  W* memory_;
  int64_t stride_, begin_, count_ = 0, next_ = 0;
};

/// sums[t] += Σ row[(t · stride + k)] · weight[k] over the kernel's width.
template <int kWidth, class V, class W>
BRIM_INLINE void add_row(int64_t stride, const W* row, const W* weight, V (&sums)[kTile]) {
  V factors[kWidth];
#pragma GCC unroll 8
  for (int k = 0; k < kWidth; ++k) factors[k] = load(weight + k * kLanes<W>, Whole());
#pragma GCC unroll 8
  for (int64_t t = 0; t < kTile; ++t) {
#pragma GCC unroll 8
    for (int k = 0; k < kWidth; ++k) {
      sums[t] += factors[k] * load(row + (t * stride + k) * kLanes<W>, Whole());
    }
  }
}

template <class T, int kWidth>
void convolve_as(const DepthwiseShape& shape, const T* x, const Wide<T>* weight,
                 const Wide<T>* bias, T* y, Wide<T>* scratch) {
  using W = Wide<T>;
  using V = Vector<T>;
  constexpr int64_t kCount = kLanes<W>;
  const DepthwiseSide &height = shape.height, &width = shape.width;
  W* const factors = scratch;
  InputRows<T> input(shape, x, scratch + shape.taps() * kCount);
  V start = {};
  with_part<W>(shape.count, [&](auto part) {
    for (int64_t tap = 0; tap < shape.taps(); ++tap) {
      store(load(weight + tap * shape.channels, part), factors + tap * kCount, Whole());
    }
    if (bias != nullptr) start = load(bias, part);
  });
  for (int64_t out = 0; out < height.out; ++out) {
    const W* rows[kHighestKernel];
    input.find(out, rows);
    for (int64_t first = 0; first < width.out; first += kTile) {
      V sums[kTile];
#pragma GCC unroll 8
      for (int64_t t = 0; t < kTile; ++t) sums[t] = start;
      for (int64_t k = 0; k < height.kernel; ++k) {
        if (rows[k] == nullptr) continue;
        const W* const row = rows[k] + first * width.stride * kCount;
        const W* const of_row = factors + k * kWidth * kCount;
        if (width.stride == 1) {
          add_row<kWidth>(1, row, of_row, sums);
        } else {
          add_row<kWidth>(width.stride, row, of_row, sums);
        }
      }
      T* const to = y + (out * width.out + first) * shape.channels;
      const int64_t left = width.out - first < kTile ? width.out - first : kTile;
      with_part<W>(shape.count, [&](auto part) {
        for (int64_t t = 0; t < left; ++t) store(sums[t], to + t * shape.channels, part);
      });
    }
  }
}

template <class T, int kWidth>
void add_weight_gradients_as(const DepthwiseShape& shape, const T* gradient, const T* x,
                             Wide<T>* sums, Wide<T>* scratch) {
  using W = Wide<T>;
  using V = Vector<T>;
  constexpr int64_t kCount = kLanes<W>;
  const DepthwiseSide &height = shape.height, &width = shape.width;
  W* const of_taps = scratch;
  W* const of_row = of_taps + shape.taps() * kCount;
  InputRows<T> input(shape, x, of_row + row_values(width, kCount));
  for (int64_t i = 0; i < shape.taps() * kCount; ++i) of_taps[i] = 0;
  V of_bias = {};
  for (int64_t out = 0; out < height.out; ++out) {
    const W* rows[kHighestKernel];
    input.find(out, rows);
    widen(shape, width.out, 1, gradient + out * width.out * shape.channels, of_row);
    for (int64_t i = 0; i < width.out; ++i) of_bias += load(of_row + i * kCount, Whole());
    for (int64_t k = 0; k < height.kernel; ++k) {
      if (rows[k] == nullptr) continue;
      W* const to = of_taps + k * kWidth * kCount;
      V part[kWidth];
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; ++i) part[i] = load(to + i * kCount, Whole());
      for (int64_t o = 0; o < width.out; ++o) {
        const V of_y = load(of_row + o * kCount, Whole());
        const W* const pixels = rows[k] + o * width.stride * kCount;
#pragma GCC unroll 8
        for (int i = 0; i < kWidth; ++i) part[i] += of_y * load(pixels + i * kCount, Whole());
      }
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; ++i) store(part[i], to + i * kCount, Whole());
    }
  }
  with_part<W>(shape.count, [&](auto part) {
    for (int64_t tap = 0; tap < shape.taps(); ++tap, sums += shape.channels) {
      store(load(sums, part) + load(of_taps + tap * kCount, Whole()), sums, part);
    }
    store(load(sums, part) + of_bias, sums, part);
  });
}

/// f<the kernel's width>()
template <class F>
void with_width(const DepthwiseShape& shape, const F& f) {
  const int64_t width = shape.width.kernel;
  if (width == 3) return f.template operator()<3>();
  if (width == 5) return f.template operator()<5>();
  f.template operator()<7>();
}

template <class T>
void convolve(const DepthwiseShape& shape, const T* x, const Wide<T>* weight, const Wide<T>* bias,
              T* y, Wide<T>* scratch) {
  with_width(shape,
             [&]<int kWidth>() { convolve_as<T, kWidth>(shape, x, weight, bias, y, scratch); });
}

template <class T>
void add_weight_gradients(const DepthwiseShape& shape, const T* gradient, const T* x, Wide<T>* sums,
                          Wide<T>* scratch) {
  with_width(shape, [&]<int kWidth>() {
    add_weight_gradients_as<T, kWidth>(shape, gradient, x, sums, scratch);
  });
}

template <class T>
DepthwiseLoops<T> loops() {
  return {kLanes<Wide<T>>, scratch_values<T>, convolve<T>, add_weight_gradients<T>};
}

}  // namespace

Table<DepthwiseLoops> depthwise_table() {
  return {loops<float>(), loops<double>(), loops<BFloat16>()};
}

}  // namespace brim::nn::loops::BRIM_ISA
