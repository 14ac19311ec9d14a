#include "framework/device/memory/block_cache.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "framework/device/memory/extents.h"

namespace brim::device {
namespace {

constexpr size_t kUnit = 64;  // a cache line and an AVX-512 register
constexpr size_t kLargestSmall = size_t{64} << 10;

/// Lies before every block, in a line of its own.
struct alignas(kUnit) Header {
  Header* next;        // while free and small
  size_t asked_bytes;  // kFree while free
  size_t whole_bytes;  // header included
  uint64_t signature;  // tells our blocks from foreign pointers
};
static_assert(sizeof(Header) == kUnit);
constexpr size_t kFree = ~size_t{0};
constexpr uint64_t kSignature = 0x6b636f6c626d6972;

// --- size classes: multiples of 64 bytes up to 512, then four to each doubling ---

constexpr size_t next_class_size(size_t size) {
  size_t step = kUnit;
  while (step * 8 <= size) step *= 2;
  return size + step;
}

constexpr int kClasses = [] {
  int count = 0;
  for (size_t size = 2 * kUnit; size <= kLargestSmall; size = next_class_size(size)) ++count;
  return count;
}();

struct ClassTable {
  std::array<size_t, kClasses> size{};                        // whole bytes
  std::array<uint8_t, kLargestSmall / kUnit + 1> of_units{};  // by whole bytes / 64, rounded up
};

constexpr ClassTable kTable = [] {
  ClassTable table;
  size_t size = 2 * kUnit;
  size_t units = 0;
  for (int i = 0; i < kClasses; ++i, size = next_class_size(size)) {
    table.size[static_cast<size_t>(i)] = size;
    for (; units * kUnit <= size; ++units) table.of_units[units] = static_cast<uint8_t>(i);
  }
  return table;
}();
static_assert(kTable.size.back() == kLargestSmall);

size_t class_of(size_t whole_bytes) { return kTable.of_units[(whole_bytes + kUnit - 1) / kUnit]; }

/// How many free blocks of a class a thread keeps; half of them move at a time.
int keep_of(size_t class_index) {
  constexpr size_t kKeepBytes = size_t{128} << 10;
  return static_cast<int>(std::clamp(kKeepBytes / kTable.size[class_index], size_t{4}, size_t{64}));
}

// --- what all threads share ---

struct List {
  Header* head = nullptr;
  int count = 0;

  void push(Header* block) {
    block->next = head;
    head = block;
    ++count;
  }
  Header* pop() {
    Header* block = head;
    head = block->next;
    --count;
    return block;
  }
};

struct Shared {
  std::mutex mutex;
  Extents extents;
  std::array<List, kClasses> free;
  std::array<std::byte*, kClasses> fresh{};      // never used: from here …
  std::array<std::byte*, kClasses> fresh_end{};  // … to here

  std::byte* take_extent(size_t bytes) {
    std::byte* start = extents.take(bytes);
    if (start != nullptr) return start;
    extents.release();
    start = extents.take(bytes);
    if (start != nullptr) return start;
    extents.release(Extents::kPage);  // free memory between blocks in use counts to the cap, too
    return extents.take(bytes);
  }
};

// Never destroyed: tensors in static variables are freed after main(), in an order no one knows.
Shared& shared() {
  static Shared* instance = new Shared;
  return *instance;
}

constinit std::atomic<int64_t> allocated_bytes{0};
constinit std::atomic<int64_t> peak_bytes{0};

void count(size_t bytes) {
  const auto added = static_cast<int64_t>(bytes);
  const int64_t now = allocated_bytes.fetch_add(added, std::memory_order_relaxed) + added;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

Header* make_header(std::byte* start, size_t whole_bytes) {
  ASAN_UNPOISON_MEMORY_REGION(start, sizeof(Header));
  return new (start) Header{nullptr, kFree, whole_bytes, kSignature};
}

/// A block of this class that was never used; null without memory. The mutex is held.
Header* carve(Shared& all, size_t class_index) {
  const size_t size = kTable.size[class_index];
  std::byte*& fresh = all.fresh[class_index];
  if (static_cast<size_t>(all.fresh_end[class_index] - fresh) < size) {
    const size_t chunk = std::max(kLargestSmall, 8 * size);
    std::byte* start =
        all.take_extent((chunk + Extents::kPage - 1) / Extents::kPage * Extents::kPage);
    if (start == nullptr) return nullptr;
    fresh = start;
    all.fresh_end[class_index] = start + chunk;
  }
  return make_header(std::exchange(fresh, fresh + size), size);
}

// --- what each thread has for itself ---

enum class ThreadState : uint8_t { kNew, kReady, kGone };

// Trivial types, so that they can be used while the thread's destructors run and after.
constinit thread_local ThreadState thread_state = ThreadState::kNew;
constinit thread_local std::array<List, kClasses> thread_free{};

/// Moves blocks to the shared list until `keep` are left.
void move_out(size_t class_index, int keep) {
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  List& list = thread_free[class_index];
  while (list.count > keep) all.free[class_index].push(list.pop());
}

struct AtThreadExit {
  ~AtThreadExit() {
    thread_state = ThreadState::kGone;
    for (size_t i = 0; i < kClasses; ++i) move_out(i, 0);
  }
};

/// False while the thread ends: it then works on the shared lists.
bool thread_is_ready() {
  if (thread_state == ThreadState::kNew) [[unlikely]] {
    static thread_local AtThreadExit at_exit;
    (void)at_exit;
    thread_state = ThreadState::kReady;
  }
  return thread_state == ThreadState::kReady;
}

/// Fills the thread's list and takes one from it; null without memory.
Header* refill(size_t class_index) {
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  List& list = thread_free[class_index];
  const int wanted = thread_is_ready() ? keep_of(class_index) / 2 : 1;
  while (list.count < wanted && all.free[class_index].count > 0) {
    list.push(all.free[class_index].pop());
  }
  if (list.count > 0) return list.pop();
  return carve(all, class_index);
}

Header* take_small(size_t whole_bytes) {
  const size_t class_index = class_of(whole_bytes);
  List& list = thread_free[class_index];
  return list.count > 0 ? list.pop() : refill(class_index);
}

void give_small(Header* header) {
  const size_t class_index = class_of(header->whole_bytes);
  List& list = thread_free[class_index];
  list.push(header);
  const int keep = thread_is_ready() ? keep_of(class_index) : 0;
  if (list.count > keep) [[unlikely]]
    move_out(class_index, keep / 2);
}

Header* take_large(size_t whole_bytes) {
  whole_bytes = (whole_bytes + Extents::kPage - 1) / Extents::kPage * Extents::kPage;
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  std::byte* start = all.take_extent(whole_bytes);
  return start == nullptr ? nullptr : make_header(start, whole_bytes);
}

void give_large(Header* header) {
  const size_t whole_bytes = header->whole_bytes;
  header->signature = 0;
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  all.extents.give(reinterpret_cast<std::byte*>(header), whole_bytes);
}

const Header* header_of(const void* block) { return static_cast<const Header*>(block) - 1; }

}  // namespace

void* allocate_block(size_t bytes) noexcept {
  if (bytes > kFree / 2) return nullptr;
  const size_t whole_bytes = bytes + sizeof(Header);
  Header* header = whole_bytes <= kLargestSmall ? take_small(whole_bytes) : take_large(whole_bytes);
  if (header == nullptr) return nullptr;
  header->asked_bytes = bytes;
  count(bytes);
  void* block = header + 1;
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  return block;
}

void free_block(void* block) noexcept {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (header->signature != kSignature || header->asked_bytes == kFree) {
    std::fputs("brim: a tensor's memory was freed twice, or is not from Brim's allocator\n",
               stderr);
    std::abort();
  }
  allocated_bytes.fetch_sub(static_cast<int64_t>(header->asked_bytes), std::memory_order_relaxed);
  header->asked_bytes = kFree;
  // Under the address sanitizer a tensor used after its end is found, cached or not.
  ASAN_POISON_MEMORY_REGION(block, header->whole_bytes - sizeof(Header));
  if (header->whole_bytes <= kLargestSmall) {
    give_small(header);
  } else {
    give_large(header);
  }
}

size_t block_bytes(const void* block) noexcept { return header_of(block)->asked_bytes; }

MemoryStats cpu_memory() {
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  return {.allocated_bytes = allocated_bytes.load(std::memory_order_relaxed),
          .reserved_bytes = static_cast<int64_t>(all.extents.reserved_bytes()),
          .peak_bytes = peak_bytes.load(std::memory_order_relaxed),
          .peak_reserved_bytes = static_cast<int64_t>(all.extents.max_reserved_bytes()),
          .cap_bytes = static_cast<int64_t>(std::min(all.extents.cap_bytes(), kFree / 2))};
}

void set_cpu_cap(int64_t bytes) {
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  all.extents.set_cap(static_cast<size_t>(std::max<int64_t>(bytes, 0)));
  if (all.extents.reserved_bytes() > all.extents.cap_bytes()) all.extents.release();
}

void reset_cpu_peak() {
  peak_bytes.store(allocated_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void release_cached_cpu_memory() {
  Shared& all = shared();
  std::lock_guard lock(all.mutex);
  all.extents.release();
}

}  // namespace brim::device
