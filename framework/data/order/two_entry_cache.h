// Keeps what was made last, for values that are functions of a number, cost something to make, and
// are asked for by several threads that stay near each other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace brim::data {

/// The two values made last, so that threads on either side of an epoch's end make none twice.
/// Thread-safe; others wait while one makes a value.
template <class Value>
class TwoEntryCache {
 public:
  /// The value of `number`, by make(number) where it isn't at hand.
  template <class Make>
  std::shared_ptr<const Value> get(int64_t number, Make make) {
    const std::lock_guard lock(mutex_);
    if (entries_[0].number != number) std::swap(entries_[0], entries_[1]);
    if (entries_[0].number != number) {
      entries_[0] = {number, std::make_shared<const Value>(make(number))};
    }
    return entries_[0].value;
  }

 private:
  struct Entry {
    int64_t number = -1;
    std::shared_ptr<const Value> value;
  };
  std::mutex mutex_;
  std::array<Entry, 2> entries_;  // the one asked for last first
};

}  // namespace brim::data
