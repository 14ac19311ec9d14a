// Memory of the simulated GPU, and pinned memory of the host. What has been freed is overwritten,
// in the order of the stream that it was allocated on: another stream that still reads it finds
// NaN.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

/// What memory holds, of all that is allocated. Until it is restored, memory that was not written
/// yet holds zeros, with which operators compute.
class MemorySnapshot {
 public:
  MemorySnapshot();
  void restore() const;

 private:
  std::vector<std::pair<void*, std::string>> contents_;
};

/// Keeps memory that is allocated while it is filled, also once it is freed.
class MemoryPool;
std::shared_ptr<MemoryPool> make_pool();
/// Null: memory belongs to no pool from now on.
void fill_pool(const std::shared_ptr<MemoryPool>& pool);

c10::Allocator* pinned_memory();
/// Keeps the block of pinned memory that begins below `address` from being freed; null where there
/// is none.
std::shared_ptr<void> pinned_block(const void* address);

}  // namespace brim::simulated
