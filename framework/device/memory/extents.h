// Memory from the kernel in pieces of any size: split to fit, merged with their neighbours when
// freed, and kept for reuse. Giving memory back each step and faulting it in again costs a CPU
// training step a third of its speed; this doesn't.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace brim::device {

/// Best fit over address-ordered free extents. Not thread-safe. Never throws: a null result means
/// that the kernel has no more, or that the cap is reached.
class Extents {
 public:
  static constexpr size_t kPage = size_t{1} << 12;
  static constexpr size_t kHugePage = size_t{1} << 21;

  Extents() = default;
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;

  /// Page-aligned; `bytes` is a multiple of kPage. Not zeroed when it was used before.
  std::byte* take(size_t bytes);
  /// Takes back what take() gave, with the same size.
  void give(std::byte* start, size_t bytes);
  /// Returns free memory to the kernel in whole pages of this size. Small pages leave nothing
  /// behind, and break up the huge pages that blocks in use share with what is free.
  void release(size_t page = kHugePage);

  /// take() maps no more than this in all: whole huge pages, or, where those would pass the cap, no
  /// more than it was asked for.
  void set_cap(size_t bytes) { cap_bytes_ = bytes; }
  size_t cap_bytes() const { return cap_bytes_; }

  /// Taken and free together: what the kernel has mapped for us.
  size_t reserved_bytes() const { return reserved_bytes_; }
  /// The most that it ever was.
  size_t max_reserved_bytes() const { return max_reserved_bytes_; }

 private:
  bool grow(size_t bytes);
  void add_free(uintptr_t start, size_t bytes);
  void remove_free(uintptr_t start, size_t bytes);

  std::map<uintptr_t, size_t> free_;                     // by address; no two touch
  std::set<std::pair<size_t, uintptr_t>> free_by_size_;  // the same
  size_t reserved_bytes_ = 0;
  size_t max_reserved_bytes_ = 0;
  size_t cap_bytes_ = std::numeric_limits<size_t>::max();
};

}  // namespace brim::device
