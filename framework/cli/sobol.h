// Sobol points: quasi-random, so that a few of them cover a search space evenly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/sweep/search.h"

namespace brim::cli {

/// Scrambled by the seed with a random matrix and a digital shift (Matousek, "On the L2-discrepancy
/// for anchored boxes", 1998), by the operators of torch.quasirandom.SobolEngine.
sweep::Points sobol_points(int64_t seed, size_t keys);

}  // namespace brim::cli
