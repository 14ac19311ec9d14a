// Counter-based random numbers: every value is a pure function of (key, counter), so sample order
// and augmentation need no state, no lock and no fast-forward.
// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace brim {

/// One Philox4x32-10 block: four independent 32-bit values.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

/// A stream of random numbers named by (seed, a, b), for instance (seed, epoch, sample). Streams
/// with different names are independent. Copyable; not thread-safe.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t a, uint64_t b);

  uint32_t next_u32();
  /// The bytes of one next_u32() after the other, each from its lowest byte on; the rest of the
  /// last one is dropped.
  void fill(std::span<uint8_t> bytes);
  /// Uniform in [0, 1), 24 bits.
  double uniform();
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in [0, bound), without modulo bias. bound > 0.
  int64_t below(int64_t bound);

 private:
  uint64_t key_;
  uint64_t stream_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> values_{};
  int used_ = 4;
};

/// A bijection of [0, size) chosen by its key, evaluated at one point in O(1): a Feistel network
/// over the next even power of two with cycle walking (Black & Rogaway, CT-RSA 2002).
class KeyedPermutation {
 public:
  /// 0 ≤ size ≤ 2^62; the permutation is a function of (seed, epoch, size) only.
  KeyedPermutation(uint64_t seed, uint64_t epoch, int64_t size);

  /// The image of `position`, both in [0, size).
  int64_t operator()(int64_t position) const;

 private:
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace brim
