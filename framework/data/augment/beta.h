// Random numbers from the symmetric beta distribution.
#pragma once

#include "framework/base/random.h"

namespace brim::data {

/// From Beta(alpha, alpha), alpha > 0: X / (X + Y) for two gamma variables by Marsaglia and Tsang's
/// method ("A simple method for generating gamma variables", ACM TOMS 2000), which for alpha < 1
/// draws with alpha + 1 and multiplies by U^(1 / alpha). Logarithms keep small alphas from 0 / 0.
double draw_beta(double alpha, RandomStream& random);

}  // namespace brim::data
