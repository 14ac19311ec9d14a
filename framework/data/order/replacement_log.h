// Which training samples could not be read, and which ones were trained on in their place.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace brim::data {

struct Replacement {
  int64_t epoch = 0;
  int64_t position = 0;  // of the epoch
  int64_t sample = 0;    // what the order has there
  int64_t by = 0;        // the sample that was read instead
  std::string name;      // Dataset::name() of `sample`
};

/// A run's loaders, one after the other, write to it as they read ahead; whoever takes the steps
/// takes out what is finished. What is read again, because a step is taken again, counts once.
/// Thread-safe.
class ReplacementLog {
 public:
  void add(Replacement replacement);

  /// Notes that a sample could not be read. False where that was known.
  bool add_unreadable(int64_t sample);
  /// How many different ones there are.
  int64_t unreadable() const;

  /// Removes and returns those that lie before a position of an epoch, in order.
  std::vector<Replacement> take_before(int64_t epoch, int64_t position);

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, Replacement> replacements_;  // by epoch and position
  std::set<int64_t> unreadable_;
};

}  // namespace brim::data
