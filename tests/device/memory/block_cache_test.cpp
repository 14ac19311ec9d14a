#include "framework/device/memory/block_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/base/random.h"

namespace brim::device {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class BlockCache : public ::testing::Test {
 protected:
  void SetUp() override {
    release_cached_cpu_memory();
    reset_cpu_peak();
  }
};

/// Sizes of all kinds: mostly small, some large, around every border.
size_t some_size(RandomStream& random) {
  const auto size = static_cast<size_t>(random.below(int64_t{1} << (1 + random.below(20))));
  return random.below(4) == 0 ? (size_t{1} << random.below(20)) + size % 3 : size;
}

TEST_F(BlockCache, AlignsEveryBlockAndGivesAllOfIt) {
  for (size_t bytes = 0; bytes < 200'000; bytes += bytes < 3000 ? 1 : 997) {
    void* block = allocate_block(bytes);
    ASSERT_NE(block, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0) << bytes;
    ASSERT_EQ(block_bytes(block), bytes);
    std::memset(block, 0xab, bytes);
    free_block(block);
  }
  EXPECT_EQ(cpu_memory().allocated_bytes, 0);
}

TEST_F(BlockCache, UsesAFreedBlockAgain) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{60'000}, size_t{70'000}, 50 * kMiB}) {
    void* first = allocate_block(bytes);
    free_block(first);
    void* second = allocate_block(bytes);
    EXPECT_EQ(first, second) << bytes;
    free_block(second);
  }
}

TEST_F(BlockCache, CountsWhatWasAskedForAndItsPeak) {
  void* a = allocate_block(100);
  void* b = allocate_block(5 * kMiB + 1);
  EXPECT_EQ(cpu_memory().allocated_bytes, 101 + 5 * kMiB);
  free_block(b);
  EXPECT_EQ(cpu_memory().allocated_bytes, 100);
  EXPECT_EQ(cpu_memory().peak_bytes, 101 + 5 * kMiB);
  EXPECT_GE(cpu_memory().reserved_bytes, 5 * kMiB);
  reset_cpu_peak();
  EXPECT_EQ(cpu_memory().peak_bytes, 100);
  free_block(a);
  EXPECT_EQ(cpu_memory().allocated_bytes, 0);
  EXPECT_EQ(cpu_memory().peak_bytes, 100);
}

TEST_F(BlockCache, ReleaseGivesBackWhatIsFree) {
  const int64_t before = cpu_memory().reserved_bytes;
  void* used = allocate_block(10 * kMiB);
  void* freed = allocate_block(100 * kMiB);
  free_block(freed);
  EXPECT_GE(cpu_memory().reserved_bytes, before + 110 * kMiB);
  release_cached_cpu_memory();
  EXPECT_LE(cpu_memory().reserved_bytes, before + 14 * kMiB);
  std::memset(used, 1, 10 * kMiB);
  free_block(used);
  release_cached_cpu_memory();
  EXPECT_LE(cpu_memory().reserved_bytes, before + 2 * kMiB);
}

TEST_F(BlockCache, HasNothingWhereNobodyHas) {
  const int64_t before = cpu_memory().reserved_bytes;
  for (const size_t bytes :
       {size_t{1} << 50, size_t{1} << 60, size_t{1} << 63, std::numeric_limits<size_t>::max(),
        std::numeric_limits<size_t>::max() - 64}) {
    EXPECT_EQ(allocate_block(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(cpu_memory().allocated_bytes, 0);
  EXPECT_LE(cpu_memory().reserved_bytes, before);
}

/// Caps the address space at what is mapped now and `more` bytes; in a process of its own.
void limit_address_space(size_t more) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * 4096 + more, pages * 4096 + more};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

TEST(BlockCacheDeathTest, GivesUpItsCacheBeforeItFails) {
  EXPECT_EXIT(
      {
        free_block(allocate_block(256 * kMiB));
        limit_address_space(64 * kMiB);
        void* fits_after_release = allocate_block(300 * kMiB);
        void* never_fits = allocate_block(900 * kMiB);
        std::_Exit(fits_after_release != nullptr && never_fits == nullptr ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(BlockCacheDeathTest, SaysSoWhereABlockIsFreedTwice) {
  EXPECT_DEATH(
      {
        void* block = allocate_block(100);
        free_block(block);
        free_block(block);
      },
      "freed twice");
}

// As a training step does it: the same sizes in the same order, freed in another order.
TEST_F(BlockCache, RepeatedStepsReserveNothingNew) {
  RandomStream sizes(5, 0, 0);
  std::vector<size_t> step;
  for (int i = 0; i < 300; ++i) step.push_back(some_size(sizes) * 16);
  const auto run_step = [&](int number) {
    std::vector<void*> live;
    RandomStream random(6, static_cast<uint64_t>(number % 2), 0);
    for (const size_t bytes : step) {
      live.push_back(allocate_block(bytes));
      if (random.below(3) == 0) free_block(std::exchange(live[live.size() / 2], nullptr));
    }
    while (!live.empty()) {
      free_block(live.back());
      live.pop_back();
    }
  };
  for (int number = 0; number < 10; ++number) run_step(number);
  const int64_t settled = cpu_memory().reserved_bytes;
  for (int number = 10; number < 200; ++number) run_step(number);
  EXPECT_EQ(cpu_memory().reserved_bytes, settled);
}

// Eight threads allocate, write, check and free; half of the blocks go through a common pool, so
// that most of these are freed on another thread. Run under the thread sanitizer too.
TEST_F(BlockCache, EightThreadsCountExactlyAndNeverShareABlock) {
  constexpr int kThreads = 8;
  constexpr size_t kPool = 64;
  struct Block {
    unsigned char* start;
    size_t bytes;
  };
  std::mutex mutex;
  std::vector<Block> pool;
  std::barrier sync(kThreads + 1);
  std::atomic<int64_t> kept_bytes = 0;
  std::atomic<int> damaged = 0;

  const auto check_and_free = [&](const Block& block) {
    const auto [start, bytes] = block;
    if (bytes > 0 && (start[0] != start[bytes / 2] || start[0] != start[bytes - 1])) ++damaged;
    free_block(start);
  };
  const auto work = [&](uint64_t thread) {
    RandomStream random(9, thread, 0);
    std::vector<Block> mine;
    for (int i = 0; i < 5000; ++i) {
      Block block{nullptr, some_size(random)};
      block.start = static_cast<unsigned char*>(allocate_block(block.bytes));
      const auto mark = static_cast<unsigned char>(random.next_u32());
      if (block.bytes > 0) {
        block.start[0] = block.start[block.bytes / 2] = block.start[block.bytes - 1] = mark;
      }
      if (random.below(2) == 0) {
        mine.push_back(block);
        if (mine.size() < 50) continue;
        std::swap(mine.back(), mine[static_cast<size_t>(random.below(50))]);
        check_and_free(mine.back());
        mine.pop_back();
      } else {
        std::lock_guard lock(mutex);
        pool.push_back(block);
        if (pool.size() < kPool) continue;
        std::swap(pool.back(), pool[static_cast<size_t>(random.below(kPool))]);
        check_and_free(pool.back());
        pool.pop_back();
      }
    }
    for (const Block& block : mine) kept_bytes += static_cast<int64_t>(block.bytes);
    sync.arrive_and_wait();  // all is still: the main thread counts
    sync.arrive_and_wait();
    for (const Block& block : mine) check_and_free(block);
  };

  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  sync.arrive_and_wait();
  for (const Block& block : pool) kept_bytes += static_cast<int64_t>(block.bytes);
  EXPECT_EQ(cpu_memory().allocated_bytes, kept_bytes);
  sync.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  for (const Block& block : pool) check_and_free(block);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(cpu_memory().allocated_bytes, 0);
}

// The peak is the true maximum, not one thread's view of it: all blocks live at once.
TEST_F(BlockCache, ThePeakOverThreadsIsExact) {
  constexpr int kThreads = 8;
  std::barrier sync(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::vector<void*> live;
      for (int j = 0; j < 1000; ++j) live.push_back(allocate_block(123));
      sync.arrive_and_wait();
      for (void* block : live) free_block(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cpu_memory().peak_bytes, kThreads * 1000 * 123);
}

TEST_F(BlockCache, WhatAThreadKeptServesOthersAfterItsEnd) {
  const auto churn = [] {
    std::vector<void*> live;
    for (int i = 0; i < 100; ++i) live.push_back(allocate_block(30'000));
    for (void* block : live) free_block(block);
  };
  std::thread(churn).join();
  const int64_t settled = cpu_memory().reserved_bytes;
  for (int i = 0; i < 20; ++i) std::thread(churn).join();
  EXPECT_EQ(cpu_memory().reserved_bytes, settled);
}

// One thread makes, another frees, for ever: memory must find its way back.
TEST_F(BlockCache, OneWayTrafficBetweenThreadsStaysBounded) {
  int64_t settled = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(allocate_block(20'000));
    std::thread([&] {
      for (void* block : blocks) free_block(block);
    }).join();
    if (round == 5) settled = cpu_memory().reserved_bytes;
  }
  EXPECT_EQ(cpu_memory().reserved_bytes, settled);
}

}  // namespace
}  // namespace brim::device
