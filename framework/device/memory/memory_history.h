// What was allocated and freed on the CPU, one by one, in the form that PyTorch's memory viewer
// (pytorch.org/memory_viz) reads: a pickle of "segments" and "device_traces". On a GPU LibTorch's
// allocator keeps its own.
#pragma once

#include <cstddef>
#include <string>

namespace brim::device {

/// From now on; what was remembered before is dropped. Costs a lock and some microseconds an
/// allocation.
void start_memory_history();
void stop_memory_history();

/// For the allocator; free where there is no history.
void remember_allocation(const void* block, size_t bytes);
void remember_free(const void* block, size_t bytes);

/// The newest hundred thousand events since the start, and the blocks that were made since and are
/// still held. Each names the operators that it was made in, innermost first, and the phase of the
/// step, where the thread's operators were recorded.
std::string pickle_memory_history();

}  // namespace brim::device
