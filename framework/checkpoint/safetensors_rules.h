// What reader and writer of safetensors share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "framework/checkpoint/safetensors.h"

namespace brim::checkpoint {

inline constexpr size_t kLengthBytes = 8;
inline constexpr uint64_t kLongestHeader = 100'000'000;
inline constexpr size_t kMaxDimensions = 64;  // as many as LibTorch and NumPy can iterate over
inline constexpr std::string_view kMetadataKey = "__metadata__";

std::optional<DType> find_dtype(std::string_view name);

/// Bytes of a tensor; nullopt where they or its strides don't fit 63 bits.
std::optional<int64_t> tensor_size(DType dtype, std::span<const int64_t> shape);

}  // namespace brim::checkpoint
