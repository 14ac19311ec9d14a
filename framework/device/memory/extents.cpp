#include "framework/device/memory/extents.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace brim::device {
namespace {

constexpr uintptr_t round_up(uintptr_t value, size_t step) {
  return (value + step - 1) / step * step;
}
constexpr uintptr_t round_down(uintptr_t value, size_t step) { return value / step * step; }

// More than any address space holds; keeps the sums below from overflowing.
constexpr size_t kTooMany = size_t{1} << 56;

/// False where the kernel refuses to split a mapping once more (vm.max_map_count).
bool unmap(uintptr_t start, size_t bytes) {
  if (bytes == 0) return true;
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(start), bytes);
  return ::munmap(reinterpret_cast<void*>(start), bytes) == 0;
}

}  // namespace

std::byte* Extents::take(size_t bytes) {
  if (bytes >= kTooMany) return nullptr;
  auto found = free_by_size_.lower_bound({bytes, 0});
  if (found == free_by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    found = free_by_size_.lower_bound({bytes, 0});
  }
  const auto [size, start] = *found;
  remove_free(start, size);
  if (size > bytes) add_free(start + bytes, size - bytes);
  return reinterpret_cast<std::byte*>(start);
}

void Extents::give(std::byte* start, size_t bytes) {
  add_free(reinterpret_cast<uintptr_t>(start), bytes);
}

/// Maps room for `bytes`, which becomes free.
bool Extents::grow(size_t bytes) {
  const size_t room = cap_bytes_ - std::min(cap_bytes_, reserved_bytes_);
  if (bytes > room) return false;
  size_t size = round_up(bytes, kHugePage);
  if (size > room) size = bytes;
  void* mapped =
      ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  // The kernel maps downwards: keeping the upper end makes this piece touch the one before.
  const auto low = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t high = low + size + kHugePage;
  const uintptr_t end = round_down(high, kHugePage);
  unmap(low, end - size - low);
  unmap(end, high - end);
  // Refused where the kernel has no huge pages; small ones do.
  ::madvise(reinterpret_cast<void*>(end - size), size, MADV_HUGEPAGE);
  reserved_bytes_ += size;
  max_reserved_bytes_ = std::max(max_reserved_bytes_, reserved_bytes_);
  add_free(end - size, size);
  return true;
}

void Extents::release(size_t page) {
  const std::vector<std::pair<uintptr_t, size_t>> all(free_.begin(), free_.end());
  for (const auto& [start, bytes] : all) {
    const uintptr_t first = round_up(start, page);
    const uintptr_t last = round_down(start + bytes, page);
    if (first >= last || !unmap(first, last - first)) continue;
    remove_free(start, bytes);
    reserved_bytes_ -= last - first;
    if (first > start) add_free(start, first - start);
    if (start + bytes > last) add_free(last, start + bytes - last);
  }
}

/// Merges with the neighbours that are free.
void Extents::add_free(uintptr_t start, size_t bytes) {
  const auto after = free_.lower_bound(start);
  if (after != free_.begin()) {
    const auto [before_start, before_bytes] = *std::prev(after);
    if (before_start + before_bytes == start) {
      remove_free(before_start, before_bytes);
      start = before_start;
      bytes += before_bytes;
    }
  }
  if (after != free_.end() && after->first == start + bytes) {
    const auto [after_start, after_bytes] = *after;
    remove_free(after_start, after_bytes);
    bytes += after_bytes;
  }
  free_.emplace(start, bytes);
  free_by_size_.emplace(bytes, start);
}

void Extents::remove_free(uintptr_t start, size_t bytes) {
  free_.erase(start);
  free_by_size_.erase({bytes, start});
}

}  // namespace brim::device
