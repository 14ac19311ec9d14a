// Number formats of the loops in this folder: how each is stored and in what it is computed with.
// The loops are compiled once for each instruction set, so nothing here may become a function that
// the linker shares between them: everything is inlined.
#pragma once

#include <cstdint>

namespace brim::nn::loops {

/// The upper half of a float32's bits.
struct BFloat16 {
  uint16_t bits;
};

template <class T>
struct WideType {
  using type = T;
};
template <>
struct WideType<BFloat16> {
  using type = float;
};
/// What is computed in: float64 for float64, float32 for the rest.
template <class T>
using Wide = typename WideType<T>::type;

#define BRIM_INLINE [[gnu::always_inline]] static inline

// Before a loop: what it writes is not what it reads, except at the same index.
#if defined(__GNUC__) && !defined(__clang__)
#define BRIM_NO_ALIAS _Pragma("GCC ivdep")
#else
#define BRIM_NO_ALIAS
#endif

BRIM_INLINE double wide(double x) { return x; }
BRIM_INLINE float wide(float x) { return x; }
BRIM_INLINE float wide(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}

BRIM_INLINE void store(double x, double* to) { *to = x; }
BRIM_INLINE void store(float x, float* to) { *to = x; }
/// Rounds to nearest, ties to even; not-a-number stays it.
BRIM_INLINE void store(float x, BFloat16* to) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_number = (bits & 0x7fffffffU) <= 0x7f800000U;
  to->bits = static_cast<uint16_t>(is_number ? rounded : 0x7fc0U);
}

}  // namespace brim::nn::loops
