// The loops of an operation for each stored format.
#pragma once

#include <type_traits>

#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/fused/loops/numbers.h"

namespace brim::nn::loops {

/// Loops<T> is a struct of function pointers.
template <template <class> class Loops>
struct Table {
  Loops<float> of_float;
  Loops<double> of_double;
  Loops<BFloat16> of_bfloat16;

  /// T is float, double or BFloat16.
  template <class T>
  const Loops<T>& of() const {
    if constexpr (std::is_same_v<T, float>) return of_float;
    if constexpr (std::is_same_v<T, double>) return of_double;
    if constexpr (std::is_same_v<T, BFloat16>) return of_bfloat16;
  }
};

}  // namespace brim::nn::loops
