// Vectors as wide as the registers of the instruction set that a file is compiled for, and
// functions of them. float32's exp is ours, float64's the C library's, value by value. BRIM_ISA is
// the instruction set's name; like numbers.h, this makes no function that the linker could share.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>

#include "framework/nn/fused/loops/numbers.h"

namespace brim::nn::loops::BRIM_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
typedef uint16_t AllHalves __attribute__((vector_size(kVectorBytes)));

/// How many values a vector of W has.
template <class W>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(W));

/// What is computed with for values stored as T.
template <class W>
struct VectorType {
  typedef W type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorType<Wide<T>>::type;

/// The whole of a vector, or its first values.
struct Whole {};
struct PartialVector {
  int count;
};

BRIM_INLINE Floats load(const float* from, Whole, float = 0) {
  Floats v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
BRIM_INLINE Doubles load(const double* from, Whole, double = 0) {
  Doubles v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
BRIM_INLINE Floats load(const BFloat16* from, Whole, float = 0) {
  Halves upper;
  __builtin_memcpy(&upper, from, sizeof(upper));
  return reinterpret_cast<Floats>(__builtin_convertvector(upper, Words) << 16);
}
/// The lanes that there are no values for get `rest`.
template <class T>
BRIM_INLINE Vector<T> load(const T* from, PartialVector part, Wide<T> rest = 0) {
  Wide<T> values[kLanes<Wide<T>>];
  for (int i = 0; i < kLanes<Wide<T>>; ++i) values[i] = i < part.count ? wide(from[i]) : rest;
  return load(values, Whole());
}

BRIM_INLINE void store(Floats v, float* to, Whole) { __builtin_memcpy(to, &v, sizeof(v)); }
BRIM_INLINE void store(Doubles v, double* to, Whole) { __builtin_memcpy(to, &v, sizeof(v)); }
/// Rounds as the scalar store() does; the instruction for it takes numbers below 2^-126 for 0.
BRIM_INLINE void store(Floats v, BFloat16* to, Whole) {
#if defined(__AVX512BF16__)
  const auto rounded = _mm512_cvtneps_pbh(v);
  __builtin_memcpy(to, &rounded, sizeof(rounded));
#else
  const Words bits = reinterpret_cast<Words>(v);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words kept = (bits & 0x7fffffffU) <= 0x7f800000U ? rounded : (rounded & 0U) + 0x7fc0U;
  const Halves upper = __builtin_convertvector(kept, Halves);
  __builtin_memcpy(to, &upper, sizeof(upper));
#endif
}
template <class V, class T>
BRIM_INLINE void store(V v, T* to, PartialVector part) {
  Wide<T> values[kLanes<Wide<T>>];
  __builtin_memcpy(values, &v, sizeof(v));
  for (int i = 0; i < part.count; ++i) loops::store(values[i], to + i);
}

/// f(index, Whole or PartialVector) over n values.
template <class W, class F>
[[gnu::always_inline]] inline void for_each_vector(int64_t n, const F& f) {
  constexpr int kCount = kLanes<W>;
  int64_t i = 0;
  for (; i + kCount <= n; i += kCount) f(i, Whole());
  if (i < n) f(i, PartialVector{static_cast<int>(n - i)});
}

/// a > b ? a : b, so not-a-number if b is. With a constant GCC 12 finds the instruction by name
/// only.
template <class V>
BRIM_INLINE V greater(V a, V b) {
  return a > b ? a : b;
}
template <class V>
BRIM_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}
#if defined(__AVX512F__)
BRIM_INLINE Floats greater(Floats a, Floats b) { return _mm512_maskz_max_ps(0xffff, a, b); }
BRIM_INLINE Floats smaller(Floats a, Floats b) { return _mm512_maskz_min_ps(0xffff, a, b); }
#elif defined(__AVX2__)
BRIM_INLINE Floats greater(Floats a, Floats b) { return _mm256_max_ps(a, b); }
BRIM_INLINE Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
#endif

BRIM_INLINE Floats magnitude(Floats v) {
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(v) & 0x7fffffffU);
}

template <class W, class V>
BRIM_INLINE W sum_of_lanes(V v) {
  W sum = 0;
  for (int i = 0; i < kLanes<W>; ++i) sum += v[i];
  return sum;
}

constexpr double kLog2E = 1.4426950408889634;
constexpr float kShift = 12582912.F;  // 1.5 · 2^23: added and taken off, it rounds to integers

/// 2^(x · unit) within 1.7e-7 of it, relatively, for products from -127.4 to 128.4: 0 below -126.5,
/// infinity above 127.5. Not-a-number stays it.
///
/// 2^k · 2^f with |f| ≤ 1/2, and 2^f = 1 + f·q(f): q of degree 4 fitted for the least relative
/// error. A fused product leaves f exact.
BRIM_INLINE Floats exp2_of(Floats x, float unit) {
  constexpr float kBiasedShift = kShift + 127.F;
  const Floats shifted = x * unit + kBiasedShift;
  const Floats f = x * unit - (shifted - kBiasedShift);
  Floats q = f * 0.00132647273F + 0.00967151299F;
  q = q * f + 0.0555073358F;
  q = q * f + 0.240222424F;
  q = q * f + 0.693147004F;
  // The low bits of `shifted` are k + 127; they move to where a float's exponent lies.
  return (q * f + 1.F) * reinterpret_cast<Floats>(reinterpret_cast<Words>(shifted) << 23);
}

/// e^x of x up to 88.7, infinity from 88.4; 0 below -87.7. The unit's rounding makes it a power of
/// e^(1 - 1.4e-8).
BRIM_INLINE Floats exp_of(Floats x) {
  constexpr float kLowest = -88.F;
  return exp2_of(greater(Floats{} + kLowest, x), static_cast<float>(kLog2E));
}

/// For what is rounded to bfloat16: 2^x within 8e-5 of it, x up to 126; 0 below -126.
///
/// A polynomial of degree 3 fitted for the least relative error. Not-a-number stays it, as its low
/// bits, zeros where bfloat16 or a calculation made it, are all that is added.
BRIM_INLINE Floats coarse_exp2(Floats x) {
  const Floats shifted = x + kShift;
  const Floats f = x - (shifted - kShift);
  Floats p = f * 0.0551716684F + 0.2426111221F;
  p = p * f + 0.6932609856F;
  p = p * f + 0.9999280735F;
  const Words power = reinterpret_cast<Words>(shifted) << 23;
  return x < -126.F ? Floats{} : reinterpret_cast<Floats>(reinterpret_cast<Words>(p) + power);
}

/// 1 / x, within 7e-5 of it where the CPU has an instruction for that.
BRIM_INLINE Floats coarse_inverse(Floats x) {
#if defined(__AVX512F__)
  return _mm512_maskz_rcp14_ps(0xffff, x);  // without the mask GCC 12 warns in its own header
#else
  return 1.F / x;
#endif
}

BRIM_INLINE Doubles exp_of(Doubles x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}

}  // namespace brim::nn::loops::BRIM_ISA
