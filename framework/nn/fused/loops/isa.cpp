// BRIM_X86_LOOPS is defined where the loops are compiled for more than the compiler's own
// instruction set.
#include "framework/nn/fused/loops/isa.h"

#include "framework/nn/fused/loops/attention.h"
#include "framework/nn/fused/loops/batch_norm.h"
#include "framework/nn/fused/loops/cross_entropy.h"
#include "framework/nn/fused/loops/depthwise.h"
#include "framework/nn/fused/loops/float_product.h"
#include "framework/nn/fused/loops/gelu.h"
#include "framework/nn/fused/loops/layer_norm.h"
#include "framework/nn/fused/loops/linear_cross_entropy.h"
#include "framework/nn/fused/loops/pairs.h"

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
    case Isa::kAvx512Bf16:
      return is_available(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
#endif
    default:
      return false;
  }
}

Isa best_isa() {
  static const Isa best = [] {
    Isa widest = Isa::kBaseline;
    for (const Isa isa : kAllIsas) {
      if (is_available(isa)) widest = isa;
    }
    return widest;
  }();
  return best;
}

bool has_bf16_products() {
#ifdef BRIM_X86_LOOPS
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

// What each instruction set's copy of a file of loops defines.
#ifdef BRIM_X86_LOOPS
#define BRIM_TABLE(Type, name)                                  \
  namespace baseline {                                          \
  Type name();                                                  \
  }                                                             \
  namespace avx2 {                                              \
  Type name();                                                  \
  }                                                             \
  namespace avx512 {                                            \
  Type name();                                                  \
  }                                                             \
  namespace avx512_bf16 {                                       \
  Type name();                                                  \
  }                                                             \
  Type name(Isa isa) {                                          \
    if (isa == Isa::kAvx512Bf16) return avx512_bf16::name();    \
    if (isa == Isa::kAvx512) return avx512::name();             \
    return isa == Isa::kAvx2 ? avx2::name() : baseline::name(); \
  }
#else
#define BRIM_TABLE(Type, name) \
  namespace baseline {         \
  Type name();                 \
  }                            \
  Type name(Isa) { return baseline::name(); }
#endif

BRIM_TABLE(AttentionTable, attention_table)
BRIM_TABLE(Table<BatchNormLoops>, batch_norm_table)
BRIM_TABLE(Table<CrossEntropyLoops>, cross_entropy_table)
BRIM_TABLE(Table<DepthwiseLoops>, depthwise_table)
BRIM_TABLE(FloatProductLoop, float_product_table)
BRIM_TABLE(Table<GeluLoops>, gelu_table)
BRIM_TABLE(LayerNormTable, layer_norm_table)
BRIM_TABLE(LinearCrossEntropyTable, linear_cross_entropy_table)
BRIM_TABLE(PairLoops, pair_table)

}  // namespace brim::nn::loops
