// Rows of values, side by side in memory.
#pragma once

#include <cstdint>

namespace brim::nn::loops {

/// `count` rows of C values, one after the other.
struct Rows {
  int64_t count = 0;
  int64_t channels = 0;
};

}  // namespace brim::nn::loops
