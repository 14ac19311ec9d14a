// How the values of a tensor are stored, for code that is free of LibTorch.
#pragma once

namespace brim::cuda {

enum class Format { kFloat, kBFloat16, kHalf, kDouble };

/// What one thread reads at once, where values lie on a multiple of it.
inline constexpr int kPackBytes = 16;

}  // namespace brim::cuda
