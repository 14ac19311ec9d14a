// Memory of the simulated GPU, and pinned memory of the host. What has been freed is overwritten, in
// the order of the stream that it was allocated on: another stream that still reads it finds NaN.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>

namespace brim::simulated {

/// BRIM_SIMULATED_MIB, 2048 by default.
int64_t device_bytes();

/// Of the device; it throws c10::OutOfMemoryError beyond the process's share.
c10::Allocator* device_memory();
/// The stream, too, is to be through with the memory before it is another's.
void use_on_stream(const c10::DataPtr& pointer, c10::StreamId id);

struct Counts {
  int64_t allocated = 0;
  int64_t peak = 0;
  int64_t limit = 0;  // for allocated
};
/// Of this process.
Counts counts();
void reset_peak();
void set_limit(int64_t bytes);

c10::Allocator* pinned_memory();
/// Keeps the block of pinned memory that begins below `address` from being freed; null where there
/// is none.
std::shared_ptr<void> pinned_block(const void* address);

}  // namespace brim::simulated
