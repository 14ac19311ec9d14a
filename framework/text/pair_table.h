// Which two tokens become one: a hash table of pairs of ids, open addressing with linear probing,
// at most half full.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace brim::text {

class PairTable {
 public:
  struct Result {
    int32_t rank = -1;  // the lower, the earlier it is merged; -1: the pair stays as it is
    int32_t merged = 0;
  };

  /// For `most` pairs.
  explicit PairTable(size_t most) : slots_(std::bit_ceil(2 * most + 2)) {}

  /// False where the pair is there already. Ids are 0 or more.
  bool add(int32_t left, int32_t right, Result result) {
    Slot& slot = slots_[find_slot(key(left, right))];
    if (slot.key != kEmpty) return false;
    slot = {key(left, right), result};
    return true;
  }

  Result find(int32_t left, int32_t right) const {
    return slots_[find_slot(key(left, right))].result;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Result result;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  /// The slot that holds the key or would.
  size_t find_slot(uint64_t wanted) const {
    uint64_t mixed = (wanted ^ wanted >> 29) * 0x9E3779B97F4A7C15U;
    mixed ^= mixed >> 32;
    const size_t mask = slots_.size() - 1;
    size_t at = mixed & mask;
    while (slots_[at].key != kEmpty && slots_[at].key != wanted) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace brim::text
