// The instruction sets that the loops of this folder are compiled for.
#pragma once

namespace brim::nn::loops {

enum class Isa { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };
inline constexpr Isa kAllIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

/// Whether this CPU has it and this program was compiled for it.
bool is_available(Isa isa);

/// The widest available.
Isa best_isa();

/// Whether this CPU multiplies bfloat16, as LibTorch's kernels do it on x86; of other CPUs true, as
/// nothing is known.
bool has_bf16_products();

}  // namespace brim::nn::loops
