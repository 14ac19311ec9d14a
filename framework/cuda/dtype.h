// How the values of a tensor are stored, for code that is free of LibTorch.
#pragma once

namespace brim::cuda {

enum class Format { kFloat, kBFloat16, kHalf, kDouble };

}  // namespace brim::cuda
