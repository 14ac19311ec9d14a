// Loops over pixels or tokens that are compiled twice, for any processor and for those with AVX2,
// from one source. Neither way fuses multiply and add, so both give the same bytes.
#pragma once

namespace brim::data {

/// std::clamp, but by value: references keep GCC from vectorising a loop.
__attribute__((always_inline)) inline float limit(float value, float low, float high) {
  const float below = value < high ? value : high;
  return below > low ? below : low;
}

#if defined(__x86_64__)

template <class Loop>
__attribute__((target("avx2"))) void run_for_avx2(const Loop& loop) {
  loop();
}

/// Calls loop(), a lambda declared always_inline as all that it calls must be.
template <class Loop>
void dispatch_simd(const Loop& loop) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) {
    run_for_avx2(loop);
  } else {
    loop();
  }
}

#else

template <class Loop>
void dispatch_simd(const Loop& loop) {
  loop();
}

#endif

}  // namespace brim::data
