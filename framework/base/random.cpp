#include "framework/base/random.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace brim {
namespace {

constexpr int kFeistelRounds = 6;
constexpr int64_t kMaxSize = int64_t{1} << 62;  // two halves of 31 bits

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> x = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ULL * x[0];
    const uint64_t p1 = 0xCD9E8D57ULL * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

RandomStream::RandomStream(uint64_t seed, uint64_t a, uint64_t b)
    : key_(mix(seed)), stream_(mix(mix(a) ^ b)) {}

uint32_t RandomStream::next_u32() {
  if (used_ == 4) {
    values_ = philox(key_, block_++, stream_);
    used_ = 0;
  }
  return values_[static_cast<size_t>(used_++)];
}

void RandomStream::fill(std::span<uint8_t> bytes) {
  static_assert(std::endian::native == std::endian::little);
  size_t i = 0;
  const auto put = [&](const void* from, size_t size) {
    size = std::min(size, bytes.size() - i);
    std::memcpy(bytes.data() + i, from, size);
    i += size;
  };
  while (i < bytes.size() && used_ != 4) {
    const uint32_t value = next_u32();
    put(&value, sizeof value);
  }
  for (; bytes.size() - i >= sizeof values_; ++block_) {
    const auto values = philox(key_, block_, stream_);
    put(values.data(), sizeof values);
  }
  while (i < bytes.size()) {
    const uint32_t value = next_u32();
    put(&value, sizeof value);
  }
}

double RandomStream::uniform() { return (next_u32() >> 8) * 0x1p-24; }

int64_t RandomStream::below(int64_t bound) {
  if (bound <= 0) throw std::invalid_argument("RandomStream::below: bound must be positive");
  const auto range = static_cast<uint64_t>(bound);
  // Rejects the values under 2^64 mod range, which would make the small residues likelier.
  const uint64_t threshold = (0 - range) % range;
  for (;;) {
    const uint64_t value = (static_cast<uint64_t>(next_u32()) << 32) | next_u32();
    if (value >= threshold) return static_cast<int64_t>(value % range);
  }
}

KeyedPermutation::KeyedPermutation(uint64_t seed, uint64_t epoch, int64_t size)
    : size_(static_cast<uint64_t>(size)), key_(mix(mix(seed) ^ epoch)), half_bits_(1) {
  if (size < 0 || size > kMaxSize) {
    throw std::invalid_argument("KeyedPermutation: size must be in [0, 2^62]");
  }
  while (half_bits_ < 31 && (1ULL << (2 * half_bits_)) < size_) ++half_bits_;
}

int64_t KeyedPermutation::operator()(int64_t position) const {
  const auto start = static_cast<uint64_t>(position);
  if (start >= size_) throw std::out_of_range("KeyedPermutation: position out of range");
  const uint64_t mask = (1ULL << half_bits_) - 1;
  uint64_t value = start;
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const uint64_t next = left ^ (mix(key_ ^ mix(right * kFeistelRounds + round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace brim
