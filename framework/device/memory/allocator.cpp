#include "framework/device/memory/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <limits>
#include <string>

#include "framework/base/units.h"
#include "framework/device/memory/memory_history.h"

namespace brim::device {
namespace {

void report(void* block, int64_t change_bytes) {
  change_bytes > 0 ? remember_allocation(block, static_cast<size_t>(change_bytes))
                   : remember_free(block, static_cast<size_t>(-change_bytes));
  if (!c10::memoryProfilingEnabled()) return;
  const MemoryStats now = cpu_memory();
  c10::reportMemoryUsageToProfiler(block, change_bytes, static_cast<size_t>(now.allocated_bytes),
                                   static_cast<size_t>(now.reserved_bytes), c10::kCPU);
}

void free_tensor(void* block) {
  if (block == nullptr) return;
  const auto bytes = static_cast<int64_t>(block_bytes(block));
  free_block(block);
  report(block, -bytes);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_tensor, c10::kCPU};
    void* block = allocate_block(bytes);
    if (block == nullptr) throw_out_of_memory(bytes);
    report(block, static_cast<int64_t>(bytes));
    return {block, block, &free_tensor, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  [[noreturn]] static void throw_out_of_memory(size_t bytes) {
    const MemoryStats now = cpu_memory();
    const int64_t in_pieces = now.reserved_bytes - now.allocated_bytes;
    const bool would_fit = now.allocated_bytes + static_cast<int64_t>(bytes) <= now.cap_bytes;
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes),
                                     static_cast<size_t>(now.allocated_bytes),
                                     static_cast<size_t>(now.reserved_bytes), c10::kCPU);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory on the host: a tensor asked for ",
                     format_bytes(static_cast<int64_t>(bytes)), "; tensors hold ",
                     format_bytes(now.allocated_bytes), " already",
                     now.cap_bytes < std::numeric_limits<int64_t>::max() / 4
                         ? ", and may hold " + format_bytes(now.cap_bytes)
                         : std::string(),
                     would_fit && in_pieces > 0
                         ? "; " + format_bytes(in_pieces) + " of it are free, in pieces too small"
                         : std::string());
    std::abort();  // not reached; the macro's author doesn't say so to the compiler
  }
};

}  // namespace

void install_cpu_allocator() {
  // Never destroyed: tensors in static variables are freed after main().
  static auto* allocator = new CpuAllocator;
  c10::SetCPUAllocator(allocator);
}

}  // namespace brim::device
