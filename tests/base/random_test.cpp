// Random numbers as pure functions of their names.
#include "framework/base/random.h"

#include <gmock/gmock.h>

#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

namespace brim {
namespace {

// The philox4x32 10 lines of Random123's tests/kat_vectors.
TEST(Philox, AgreesWithRandom123) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsAFunctionOfItsName) {
  RandomStream one(1, 2, 3);
  RandomStream same(1, 2, 3);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.next_u32(), same.next_u32());
  std::set<std::vector<uint32_t>> starts;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t a = 0; a < 8; ++a) {
      for (uint64_t b = 0; b < 8; ++b) {
        RandomStream stream(seed, a, b);
        starts.insert({stream.next_u32(), stream.next_u32()});
      }
    }
  }
  EXPECT_EQ(starts.size(), 512U);
}

TEST(RandomStream, FillsBytesWithItsValues) {
  for (const int used : {0, 1, 3, 4}) {
    for (const size_t size : {0, 1, 4, 15, 16, 17, 63}) {
      RandomStream values(1, 2, 3), bytes(1, 2, 3);
      for (int i = 0; i < used; ++i) ASSERT_EQ(values.next_u32(), bytes.next_u32());
      std::vector<uint8_t> filled(size, 99);
      bytes.fill(filled);
      uint32_t value = 0;
      for (size_t i = 0; i < size; ++i) {
        value = i % 4 == 0 ? values.next_u32() : value >> 8;
        ASSERT_EQ(filled[i], static_cast<uint8_t>(value)) << used << ' ' << size << ' ' << i;
      }
      EXPECT_EQ(bytes.next_u32(), values.next_u32());
    }
  }
}

TEST(RandomStream, UniformStaysInsideAndFillsTheRange) {
  RandomStream stream(7, 0, 0);
  double sum = 0;
  double low = 1;
  double high = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = stream.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);  // five standard errors
  EXPECT_LT(low, 0.001);
  EXPECT_GT(high, 0.999);
  const double scaled = stream.uniform(-3.0, -2.0);
  EXPECT_GE(scaled, -3.0);
  EXPECT_LT(scaled, -2.0);
}

TEST(RandomStream, BelowReachesEachValueAboutEquallyOften) {
  RandomStream stream(3, 1, 4);
  constexpr int kBound = 7;
  std::array<int, kBound> counts{};
  for (int i = 0; i < 70000; ++i) {
    const int64_t value = stream.below(kBound);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, kBound);
    ++counts[static_cast<size_t>(value)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(RandomStream, BelowAtTheEnds) {
  RandomStream stream(3, 1, 4);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(stream.below(1), 0);
    EXPECT_GE(stream.below(std::numeric_limits<int64_t>::max()), 0);
  }
  EXPECT_THROW(stream.below(0), std::invalid_argument);
  EXPECT_THROW(stream.below(-1), std::invalid_argument);
}

TEST(KeyedPermutation, HitsEachValueOnce) {
  for (const int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 1797, 4096, 100003}) {
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      const KeyedPermutation permutation(42, epoch, size);
      std::vector<bool> hit(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i) {
        const int64_t image = permutation(i);
        ASSERT_GE(image, 0);
        ASSERT_LT(image, size);
        ASSERT_FALSE(hit[static_cast<size_t>(image)]) << size << " at " << i;
        hit[static_cast<size_t>(image)] = true;
      }
    }
  }
}

TEST(KeyedPermutation, HoldsForLargeSizes) {
  for (const int64_t size : {int64_t{1} << 20, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const KeyedPermutation permutation(1, 2, size);
    std::set<int64_t> images;
    const int64_t stride = size / 10000;
    for (int64_t i = 0; i < 10000; ++i) {
      const int64_t image = permutation(i * stride);
      ASSERT_GE(image, 0);
      ASSERT_LT(image, size);
      images.insert(image);
    }
    EXPECT_EQ(images.size(), 10000U);
  }
}

TEST(KeyedPermutation, RefusesWhatIsOutside) {
  EXPECT_THROW(KeyedPermutation(1, 0, 0)(0), std::out_of_range);
  EXPECT_THROW(KeyedPermutation(1, 0, 3)(3), std::out_of_range);
  EXPECT_THROW(KeyedPermutation(1, 0, 3)(-1), std::out_of_range);
  EXPECT_THROW(KeyedPermutation(1, 0, -1), std::invalid_argument);
  EXPECT_THROW(KeyedPermutation(1, 0, (int64_t{1} << 62) + 1), std::invalid_argument);
}

TEST(KeyedPermutation, DiffersOverEpochsAndSeeds) {
  constexpr int64_t kSize = 1000;
  const KeyedPermutation first(1, 0, kSize);
  const KeyedPermutation epoch(1, 1, kSize);
  const KeyedPermutation seed(2, 0, kSize);
  int same_epoch = 0;
  int same_seed = 0;
  int fixed = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    same_epoch += first(i) == epoch(i) ? 1 : 0;
    same_seed += first(i) == seed(i) ? 1 : 0;
    fixed += first(i) == i ? 1 : 0;
  }
  // Two random permutations agree at one place on average.
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
}

TEST(KeyedPermutation, ReachesEveryOrderOfThree) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const KeyedPermutation permutation(5, epoch, 3);
    orders.insert({permutation(0), permutation(1), permutation(2)});
  }
  EXPECT_EQ(orders.size(), 6U);
}

}  // namespace
}  // namespace brim
