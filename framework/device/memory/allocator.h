// Brim's allocator for CPU tensors, in LibTorch's place: a step as fast as under the best malloc
// replacements, and memory counted as CUDA's caching allocator counts it.
#pragma once

#include "framework/device/memory/block_cache.h"

namespace brim::device {

/// From now on CPU tensors get their memory from block_cache.h; those made before keep theirs.
/// Call once, before other threads make tensors. A tensor for which there is no memory throws
/// c10::OutOfMemoryError, as on CUDA. LibTorch's memory profiler sees every block.
void install_cpu_allocator();

}  // namespace brim::device
