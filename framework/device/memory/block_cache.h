// The memory behind CPU tensors: cached, so that a step's memory serves the next step, and counted
// to the byte. Knows nothing of LibTorch; allocator.h plugs it in there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace brim::device {

struct MemoryStats {
  int64_t allocated_bytes = 0;      // asked for and not yet freed
  int64_t reserved_bytes = 0;       // mapped from the kernel for us, used or not
  int64_t peak_bytes = 0;           // most allocated since the last reset
  int64_t peak_reserved_bytes = 0;  // most reserved ever
  int64_t cap_bytes = std::numeric_limits<int64_t>::max();  // of what is reserved
};

/// 64-byte aligned, any thread; not zeroed. Null where the system or the cap leaves no
/// memory, even after giving back what is cached. Blocks up to 64 KiB come from a cache of the
/// calling thread, without a lock; larger ones from Extents behind a mutex.
void* allocate_block(size_t bytes) noexcept;

/// From any thread, also while threads and the program end. Null is fine; a block freed twice or
/// not from here ends the program with a message.
void free_block(void* block) noexcept;

/// What allocate_block() was asked for.
size_t block_bytes(const void* block) noexcept;

/// Allocated and peak are exact whatever threads do; reserved is read beside them.
MemoryStats cpu_memory();
/// From now on the peak counts from what is allocated now.
void reset_cpu_peak();
/// From now on no more than this is reserved; what is in use already stays.
void set_cpu_cap(int64_t bytes);
/// Gives free memory back to the kernel, except what small blocks (64 KiB and less) once used.
void release_cached_cpu_memory();

}  // namespace brim::device
