// The instruction sets that the loops of this folder are compiled for.
#pragma once

namespace brim::nn::loops {

enum class Isa { kBaseline, kAvx2, kAvx512 };

/// Whether this CPU has it and this program was compiled for it.
bool is_available(Isa isa);

/// The widest available.
Isa best_isa();

}  // namespace brim::nn::loops
