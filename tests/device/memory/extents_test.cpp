#include "framework/device/memory/extents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/base/random.h"

namespace brim::device {
namespace {

constexpr size_t kPage = Extents::kPage;
constexpr size_t kHuge = Extents::kHugePage;

TEST(Extents, ReservesWholeAlignedHugePages) {
  Extents extents;
  std::byte* first = extents.take(3 * kHuge);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kHuge, 0);
  EXPECT_EQ(extents.reserved_bytes(), 3 * kHuge);
  extents.take(kPage);
  EXPECT_EQ(extents.reserved_bytes(), 4 * kHuge);
  extents.take(kHuge - kPage);
  EXPECT_EQ(extents.reserved_bytes(), 4 * kHuge) << "the rest of the huge page was not used";
}

TEST(Extents, TakesTheSmallestThatFits) {
  Extents extents;
  std::byte* large = extents.take(4 * kPage);
  std::byte* wall = extents.take(kPage);
  std::byte* small = extents.take(2 * kPage);
  extents.take(kHuge - 7 * kPage);
  extents.give(large, 4 * kPage);
  extents.give(small, 2 * kPage);
  EXPECT_EQ(extents.take(2 * kPage), small);
  EXPECT_EQ(extents.take(2 * kPage), large);
  extents.give(wall, kPage);
}

TEST(Extents, MergesNeighboursWhateverTheOrderOfTheirReturn) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    Extents extents;
    std::byte* start = extents.take(kHuge);
    extents.give(start, kHuge);
    for (int i = 0; i < 4; ++i) extents.take(kHuge / 4);
    for (const int i : order) extents.give(start + i * (kHuge / 4), kHuge / 4);
    EXPECT_EQ(extents.take(kHuge), start);
    EXPECT_EQ(extents.reserved_bytes(), kHuge);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Extents, ReleaseKeepsWhatIsInUse) {
  Extents extents;
  std::byte* start = extents.take(4 * kHuge);
  extents.give(start, 4 * kHuge);
  std::byte* used = extents.take(kHuge + kPage);
  std::memset(used, 7, kHuge + kPage);
  extents.release();
  EXPECT_EQ(extents.reserved_bytes(), 2 * kHuge);
  EXPECT_TRUE(
      std::all_of(used, used + kHuge + kPage, [](std::byte b) { return b == std::byte{7}; }));
  extents.give(used, kHuge + kPage);
  extents.release();
  EXPECT_EQ(extents.reserved_bytes(), 0);
}

// Blocks in use between free ones must not keep a large block from what is free in all.
TEST(Extents, AllFreeMemoryUnderTheCapCanBeTaken) {
  Extents extents;
  extents.set_cap(8 * kHuge);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(extents.take(kHuge / 2));
  EXPECT_EQ(extents.take(kPage), nullptr);
  for (size_t i = 0; i < 16; i += 2) extents.give(blocks[i], kHuge / 2);
  EXPECT_EQ(extents.take(4 * kHuge), nullptr);
  extents.release();  // there is no free huge page
  EXPECT_EQ(extents.take(4 * kHuge), nullptr);
  extents.release(kPage);
  EXPECT_EQ(extents.reserved_bytes(), 4 * kHuge);
  std::byte* all = extents.take(4 * kHuge);
  ASSERT_NE(all, nullptr);
  std::memset(all, 1, 4 * kHuge);
  EXPECT_EQ(extents.reserved_bytes(), 8 * kHuge);
  extents.give(all, 4 * kHuge);
  for (size_t i = 1; i < 16; i += 2) extents.give(blocks[i], kHuge / 2);
  extents.release(kPage);
  EXPECT_EQ(extents.reserved_bytes(), 0);
}

TEST(Extents, RefusesWhatNoMachineHas) {
  Extents extents;
  EXPECT_EQ(extents.take(size_t{1} << 55), nullptr);
  EXPECT_EQ(extents.take(~size_t{0} / kPage * kPage), nullptr);
  EXPECT_EQ(extents.reserved_bytes(), 0);
  EXPECT_NE(extents.take(kPage), nullptr);
}

// Against a plain record of what is in use: nothing overlaps, and all of it can be had back.
TEST(Extents, NeverHandsOutMemoryThatIsInUse) {
  Extents extents;
  RandomStream random(1, 2, 3);
  struct Block {
    std::byte* start;
    size_t bytes;
    std::byte mark;
  };
  std::vector<Block> blocks;
  const auto is_whole = [](const Block& block) {
    return block.start[0] == block.mark && block.start[block.bytes - 1] == block.mark;
  };
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.size() < 60 && random.below(2) == 0) {
      const auto bytes = static_cast<size_t>(1 + random.below(900)) * kPage;
      const Block block{extents.take(bytes), bytes, static_cast<std::byte>(i)};
      ASSERT_NE(block.start, nullptr);
      block.start[0] = block.start[bytes - 1] = block.mark;
      blocks.push_back(block);
    } else if (!blocks.empty()) {
      const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(blocks.size())));
      ASSERT_TRUE(is_whole(blocks[at]));
      extents.give(blocks[at].start, blocks[at].bytes);
      blocks[at] = blocks.back();
      blocks.pop_back();
    }
    if (i % 1000 == 999) extents.release();
  }
  for (const Block& block : blocks) {
    ASSERT_TRUE(is_whole(block));
    extents.give(block.start, block.bytes);
  }
  extents.release();
  EXPECT_EQ(extents.reserved_bytes(), 0);
}

}  // namespace
}  // namespace brim::device
