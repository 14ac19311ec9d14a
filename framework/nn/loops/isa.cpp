// BRIM_X86_LOOPS is defined where the loops are compiled for more than the compiler's own
// instruction set.
#include "framework/nn/loops/isa.h"

#include "framework/nn/loops/batch_norm.h"

namespace brim::nn::loops {

bool is_available(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return true;
#ifdef BRIM_X86_LOOPS
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::kAvx512:
      return is_available(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
#endif
    default:
      return false;
  }
}

Isa best_isa() {
  static const Isa best = is_available(Isa::kAvx512) ? Isa::kAvx512
                          : is_available(Isa::kAvx2) ? Isa::kAvx2
                                                     : Isa::kBaseline;
  return best;
}

namespace baseline {
BatchNormTable batch_norm_table();
}
namespace avx2 {
BatchNormTable batch_norm_table();
}
namespace avx512 {
BatchNormTable batch_norm_table();
}

BatchNormTable batch_norm_table(Isa isa) {
#ifdef BRIM_X86_LOOPS
  if (isa == Isa::kAvx512) return avx512::batch_norm_table();
  if (isa == Isa::kAvx2) return avx2::batch_norm_table();
#else
  static_cast<void>(isa);
#endif
  return baseline::batch_norm_table();
}

}  // namespace brim::nn::loops
