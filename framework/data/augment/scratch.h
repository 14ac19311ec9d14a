// Memory for an image as it was before a change that reads neighbours.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace brim::data {

/// A copy of `image`, valid until this thread's next call. The memory is the thread's own and is
/// used again: only a larger image than before allocates.
inline std::span<const uint8_t> copy_to_scratch(std::span<const uint8_t> image) {
  thread_local std::vector<uint8_t> scratch;
  if (scratch.size() < image.size()) scratch.resize(image.size());
  std::memcpy(scratch.data(), image.data(), image.size());
  return {scratch.data(), image.size()};
}

}  // namespace brim::data
