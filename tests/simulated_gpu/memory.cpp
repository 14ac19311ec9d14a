#include "tests/simulated_gpu/memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kPoison = 0xFF;  // NaN in every floating-point type, -1 in integers

std::mutex mutex;
Counts state = {.limit = device_bytes()};

void* make_block(size_t bytes) {
  void* const block =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  TORCH_CHECK(block != nullptr, "the host has no memory for the simulated GPU");
  std::memset(block, kPoison, bytes);
  return block;
}

}  // namespace

struct Block {
  void* data;
  size_t bytes;
  c10::StreamId stream;
  std::set<c10::StreamId> others;  // that it was used on
  std::weak_ptr<MemoryPool> pool;
};

namespace {

/// Those that are allocated, by where they begin.
std::map<void*, const Block*>& blocks() {
  static auto* const all = new std::map<void*, const Block*>();
  return *all;
}

void release(const Block* block) {
  {
    const std::lock_guard lock(mutex);
    state.allocated -= static_cast<int64_t>(block->bytes);
    blocks().erase(block->data);
  }
  Stream& home = stream(block->stream);
  for (const c10::StreamId other : block->others) home.wait_for(stream(other).record());
  home.enqueue([block] {
    std::memset(block->data, kPoison, block->bytes);
    std::free(block->data);
    delete block;
  });
}

}  // namespace

class MemoryPool {
 public:
  MemoryPool() = default;
  ~MemoryPool() {
    for (const Block* block : freed) release(block);
  }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  std::vector<const Block*> freed;
};

namespace {

std::weak_ptr<MemoryPool> open_pool;

void free_block(void* context) {
  const auto* block = static_cast<Block*>(context);
  const auto pool = block->pool.lock();
  if (pool == nullptr) return release(block);
  const std::lock_guard lock(mutex);
  pool->freed.push_back(block);
}

class DeviceMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, device()};
    {
      const std::lock_guard lock(mutex);
      const auto wanted = state.allocated + static_cast<int64_t>(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, wanted <= state.limit,
                       "CUDA out of memory. Tried to allocate ", bytes, " bytes beside ",
                       state.allocated, " of ", state.limit);
      state.allocated = wanted;
      state.peak = std::max(state.peak, wanted);
    }
    auto* block = new Block{make_block(bytes), bytes, current_stream(), {}, open_pool};
    const std::lock_guard lock(mutex);
    blocks()[block->data] = block;
    return {block->data, block, free_block, device()};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    stream(current_stream()).synchronize();
    std::memcpy(to, from, bytes);
  }
};

struct PinnedBlock {
  std::shared_ptr<void> memory;
  size_t bytes;
};

/// By where they begin.
std::map<const char*, PinnedBlock>& pinned_blocks() {
  static auto* const blocks = new std::map<const char*, PinnedBlock>();
  return *blocks;
}

/// Copies that are under way may hold it still.
void free_pinned(void* data) {
  std::shared_ptr<void> last;
  const std::lock_guard lock(mutex);
  const auto found = pinned_blocks().find(static_cast<const char*>(data));
  last = std::move(found->second.memory);
  pinned_blocks().erase(found);
}

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
    void* const data = make_block(bytes);
    const auto free_it = [bytes](void* block) {
      std::memset(block, kPoison, bytes);
      std::free(block);
    };
    const std::lock_guard lock(mutex);
    pinned_blocks()[static_cast<const char*>(data)] = {{data, free_it}, bytes};
    return {data, data, free_pinned, c10::DeviceType::CPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return free_pinned; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

int64_t device_bytes() {
  static const char* const mib = std::getenv("BRIM_SIMULATED_MIB");
  return (mib == nullptr ? int64_t{2048} : std::stol(mib)) << 20;
}

c10::Allocator* device_memory() {
  static auto* const memory = new DeviceMemory();
  return memory;
}

void use_on_stream(const c10::DataPtr& pointer, c10::StreamId id) {
  if (pointer.get_deleter() != free_block) return;
  const std::lock_guard lock(mutex);
  static_cast<Block*>(pointer.get_context())->others.insert(id);
}

Counts counts() {
  const std::lock_guard lock(mutex);
  return state;
}

void reset_peak() {
  const std::lock_guard lock(mutex);
  state.peak = state.allocated;
}

void set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex);
  state.limit = bytes;
}

MemorySnapshot::MemorySnapshot() {
  const std::lock_guard lock(mutex);
  for (const auto& [data, block] : blocks()) {
    const std::string content(static_cast<const char*>(data), block->bytes);
    const bool is_unwritten = content.find_first_not_of(static_cast<char>(kPoison)) == content.npos;
    if (is_unwritten) std::memset(data, 0, block->bytes);
    contents_.emplace_back(data, content);
  }
}

void MemorySnapshot::restore() const {
  const std::lock_guard lock(mutex);
  for (const auto& [data, content] : contents_) {
    if (blocks().contains(data)) std::memcpy(data, content.data(), content.size());
  }
}

std::shared_ptr<MemoryPool> make_pool() { return std::make_shared<MemoryPool>(); }

void fill_pool(const std::shared_ptr<MemoryPool>& pool) { open_pool = pool; }

c10::Allocator* pinned_memory() {
  static auto* const memory = new PinnedMemory();
  return memory;
}

std::shared_ptr<void> pinned_block(const void* address) {
  const auto* const wanted = static_cast<const char*>(address);
  const std::lock_guard lock(mutex);
  auto found = pinned_blocks().upper_bound(wanted);
  if (found == pinned_blocks().begin()) return nullptr;
  --found;
  const auto& [data, block] = *found;
  return wanted < data + block.bytes ? block.memory : nullptr;
}

}  // namespace brim::simulated
