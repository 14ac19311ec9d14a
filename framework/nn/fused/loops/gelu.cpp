// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/gelu.h"

#include <type_traits>

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

Table<GeluLoops> gelu_table();

namespace {

constexpr int64_t kTile = 4096;      // channels summed at once, on the stack
constexpr int64_t kRowsAtOnce = 64;  // rows summed in T's wide type before float64 takes over

constexpr double kInverseSqrt2Pi = 0.39894228040143268;
constexpr double kSqrtHalf = 0.70710678118654752;
constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
constexpr double kCubic = 0.044715;

/// Of the normal distribution: Φ(-a) and exp(-a²/2) for a = |v|.
template <class V>
struct Tail {
  V a, beyond, bell;
};

/// Where exp(-a²/2) is 0 in float32.
constexpr float kFar = 13.27F;
BRIM_INLINE Floats bounded_magnitude(Floats v) { return smaller(magnitude(v), Floats{} + kFar); }

/// Φ(-a) = exp(-a²/2) · t · q(t) with t = 1 / (1 + 0.3 a): q of degree 7 fitted for the least
/// relative error over all a ≥ 0, which is 1.5e-7.
BRIM_INLINE Tail<Floats> normal_tail(Floats v) {
  const Floats a = bounded_magnitude(v);
  const Floats t = 1.F / (a * 0.3F + 1.F);
  Floats q = t * 0.035683419555425644F - 0.15723909437656403F;
  q = q * t + 0.2064155489206314F;
  q = q * t - 0.0537407211959362F;
  q = q * t + 0.12859180569648743F;
  q = q * t + 0.09990435838699341F;
  q = q * t + 0.12075541913509369F;
  q = q * t + 0.11962920427322388F;
  const Floats bell = exp2_of(a * a, static_cast<float>(-0.5 * kLog2E));
  return {a, bell * (t * q), bell};
}
BRIM_INLINE Tail<Doubles> normal_tail(Doubles v) {
  const Doubles a = v < 0 ? -v : v;
  Doubles beyond;
  for (int i = 0; i < kLanes<double>; ++i) beyond[i] = 0.5 * __builtin_erfc(a[i] * kSqrtHalf);
  return {a, beyond, exp_of(a * a * -0.5)};
}

/// The tanh form's gate, the logistic function of 2√(2/π) (v + 0.044715 v³), and its slope by v.
template <class V>
struct Gate {
  V gate, slope;
};

template <class W, class V>
BRIM_INLINE Gate<V> logistic_gate(V v) {
  constexpr W kEndless = sizeof(W) == sizeof(float) ? 88.7 : 1e3;  // exp() is infinity there
  const V square = v * v;
  const V minus_z =
      v * (square * static_cast<W>(-kTwoSqrt2OverPi * kCubic) - static_cast<W>(kTwoSqrt2OverPi));
  const V gate = static_cast<W>(1) / (exp_of(smaller(V{} + kEndless, minus_z)) + static_cast<W>(1));
  const V steepness =
      square * static_cast<W>(3 * kTwoSqrt2OverPi * kCubic) + static_cast<W>(kTwoSqrt2OverPi);
  return {gate, (gate - gate * gate) * steepness};
}

// For what is rounded to bfloat16, whose steps are 4e-3 apart: within 3e-4.

/// As normal_tail(), with t = 1 / (1 + 0.4 a) and q of degree 4.
BRIM_INLINE Tail<Floats> coarse_normal_tail(Floats v) {
  const Floats a = bounded_magnitude(v);
  const Floats t = coarse_inverse(a * 0.4F + 1.F);
  Floats q = t * -0.0847421850F + 0.1440069684F;
  q = q * t + 0.1206143511F;
  q = q * t + 0.1604994888F;
  q = q * t + 0.1595739893F;
  const Floats bell = coarse_exp2(a * (a * static_cast<float>(-0.5 * kLog2E)));
  return {a, bell * (t * q), bell};
}

BRIM_INLINE Gate<Floats> coarse_logistic_gate(Floats v) {
  const Floats square = v * v;
  const Floats steepness = square * static_cast<float>(3 * kTwoSqrt2OverPi * kCubic) +
                           static_cast<float>(kTwoSqrt2OverPi);
  const Floats z = v * (square * static_cast<float>(-kTwoSqrt2OverPi * kCubic * kLog2E) +
                        static_cast<float>(-kTwoSqrt2OverPi * kLog2E));
  const Floats e = coarse_exp2(z > 126.F ? Floats{} + 126.F : z);
  const Floats gate = coarse_inverse(e + 1.F);
  return {gate, e * gate * gate * steepness};
}

template <class T, class V>
BRIM_INLINE Tail<V> tail_of(V v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return coarse_normal_tail(v);
  } else {
    return normal_tail(v);
  }
}
template <class T, class V>
BRIM_INLINE Gate<V> gate_of(V v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return coarse_logistic_gate(v);
  } else {
    return logistic_gate<Wide<T>>(v);
  }
}

template <class T, GeluForm kForm, class V>
BRIM_INLINE V gelu_of(V v) {
  if constexpr (kForm == GeluForm::kErf) {
    const Tail<V> tail = tail_of<T>(v);  // v · Φ(v) is v - a · Φ(-a) above 0, -a · Φ(-a) below
    return greater(V{}, v) - tail.a * tail.beyond;
  } else {
    return v * gate_of<T>(v).gate;
  }
}
/// The slope of that.
template <class T, GeluForm kForm, class V>
BRIM_INLINE V slope_of(V v) {
  if constexpr (kForm == GeluForm::kErf) {
    const Tail<V> tail = tail_of<T>(v);
    const V gate = v < 0 ? tail.beyond : static_cast<Wide<T>>(1) - tail.beyond;
    return gate + v * (tail.bell * static_cast<Wide<T>>(kInverseSqrt2Pi));
  } else {
    const auto [gate, slope] = gate_of<T>(v);
    return gate + v * slope;
  }
}

template <class T, GeluForm kForm>
void forward_as(Rows rows, const T* x, const Wide<T>* bias, T* y) {
  using W = Wide<T>;
  for (int64_t r = 0; r < rows.count; ++r, x += rows.channels, y += rows.channels) {
    for_each_vector<W>(rows.channels, [&](int64_t c, auto part) {
      const Vector<T> v = load(x + c, part) + load(bias + c, part);
      store(gelu_of<T, kForm>(v), y + c, part);
    });
  }
}

template <class T>
void forward(GeluForm form, Rows rows, const T* x, const Wide<T>* bias, T* y) {
  form == GeluForm::kErf ? forward_as<T, GeluForm::kErf>(rows, x, bias, y)
                         : forward_as<T, GeluForm::kTanh>(rows, x, bias, y);
}

template <class T, GeluForm kForm>
void backward_as(Rows rows, const T* gradient, const T* x, const Wide<T>* bias, T* x_gradient,
                 double* sum) {
  using W = Wide<T>;
  for (int64_t first = 0; first < rows.channels; first += kTile) {
    const int64_t channels = rows.channels - first < kTile ? rows.channels - first : kTile;
    for (int64_t row = 0; row < rows.count; row += kRowsAtOnce) {
      const int64_t end = rows.count - row < kRowsAtOnce ? rows.count : row + kRowsAtOnce;
      W sums[kTile] = {};
      for (int64_t r = row; r < end; ++r) {
        const int64_t at = r * rows.channels + first;
        for_each_vector<W>(channels, [&](int64_t c, auto part) {
          const Vector<T> v = load(x + at + c, part) + load(bias + first + c, part);
          const Vector<T> g = load(gradient + at + c, part) * slope_of<T, kForm>(v);
          store(g, x_gradient + at + c, part);
          store(load(sums + c, part) + g, sums + c, part);
        });
      }
      for (int64_t c = 0; c < channels; ++c) sum[first + c] += static_cast<double>(sums[c]);
    }
  }
}

template <class T>
void backward(GeluForm form, Rows rows, const T* gradient, const T* x, const Wide<T>* bias,
              T* x_gradient, double* sum) {
  form == GeluForm::kErf
      ? backward_as<T, GeluForm::kErf>(rows, gradient, x, bias, x_gradient, sum)
      : backward_as<T, GeluForm::kTanh>(rows, gradient, x, bias, x_gradient, sum);
}

template <class T>
GeluLoops<T> loops() {
  return {forward<T>, backward<T>};
}

}  // namespace

Table<GeluLoops> gelu_table() { return {loops<float>(), loops<double>(), loops<BFloat16>()}; }

}  // namespace brim::nn::loops::BRIM_ISA
