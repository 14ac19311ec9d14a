// Which training samples could not be read, and which ones were trained on in their place.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
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

/// Loaders write to it as they read ahead; whoever takes the steps takes out what is finished. What
/// is read again, because a step is taken again, counts once. Thread-safe.
class ReplacementLog {
 public:
  void add(Replacement replacement);

  /// Removes and returns those that lie before a position of an epoch, in order.
  std::vector<Replacement> take_before(int64_t epoch, int64_t position);

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, Replacement> replacements_;  // by epoch and position
};

}  // namespace brim::data
