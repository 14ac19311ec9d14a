#include "framework/data/samplers/shuffled.h"

#include <algorithm>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/data/order/two_entry_cache.h"

namespace brim::data {
namespace {

class Shuffled final : public Order {
 public:
  Shuffled(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}

  SampleRef at(int64_t epoch, int64_t position) const override {
    const int64_t sample = KeyedPermutation(seed_, static_cast<uint64_t>(epoch), size_)(position);
    return {sample, sample};
  }
  std::string text() const override { return "shuffled"; }

 private:
  int64_t size_;
  uint64_t seed_;
};

/// Elements of shards that lie one after the other, by the ends of the shards.
class Runs {
 public:
  explicit Runs(std::span<const int64_t> ends) : ends_(ends) {}
  int64_t first(int64_t run) const { return run == 0 ? 0 : ends_[static_cast<size_t>(run - 1)]; }
  int64_t end(int64_t run) const { return ends_[static_cast<size_t>(run)]; }
  int64_t containing(int64_t element) const {
    return std::ranges::upper_bound(ends_, element) - ends_.begin();
  }

 private:
  std::span<const int64_t> ends_;
};

class ShuffledShards final : public Order {
 public:
  /// `ends` are Dataset::shard_ends(), not empty.
  ShuffledShards(int64_t size, std::span<const int64_t> ends, uint64_t seed, int64_t window)
      : count_(static_cast<int64_t>(ends.size())), shards_(ends), seed_(seed), window_(window) {
    if (ends.front() < 0 || ends.back() != size || !std::ranges::is_sorted(ends)) {
      throw Error(Exit::kBug, "the shards of a dataset don't add up to its {} samples", size);
    }
  }

  SampleRef at(int64_t epoch, int64_t position) const override {
    // A turn is a shard's place in the epoch's order of shards.
    const auto ends = turn_ends_.get(epoch, [this](int64_t number) { return turn_ends(number); });
    const Runs turns(*ends);
    const int64_t window = turns.containing(position) / window_;
    const int64_t first = turns.first(window * window_);
    const int64_t last = turns.end(std::min(window * window_ + window_, count_) - 1);
    const KeyedPermutation mix(choice_seed(seed_, Choice::kWindow, epoch),
                               static_cast<uint64_t>(window), last - first);
    const int64_t mixed = first + mix(position - first);
    const int64_t turn = turns.containing(mixed);
    const int64_t sample = shards_.first(shard(epoch, turn)) + mixed - turns.first(turn);
    return {sample, sample};
  }
  std::string text() const override {
    return fmt::format("shuffled in windows of {} of {} shards", window_, count_);
  }

 private:
  int64_t shard(int64_t epoch, int64_t turn) const {
    return KeyedPermutation(choice_seed(seed_, Choice::kShards), static_cast<uint64_t>(epoch),
                            count_)(turn);
  }
  std::vector<int64_t> turn_ends(int64_t epoch) const {
    std::vector<int64_t> ends;
    ends.reserve(static_cast<size_t>(count_));
    int64_t end = 0;
    for (int64_t turn = 0; turn < count_; ++turn) {
      const int64_t chosen = shard(epoch, turn);
      end += shards_.end(chosen) - shards_.first(chosen);
      ends.push_back(end);
    }
    return ends;
  }

  int64_t count_;
  Runs shards_;
  uint64_t seed_;
  int64_t window_;
  mutable TwoEntryCache<std::vector<int64_t>> turn_ends_;  // by epoch
};

}  // namespace

std::shared_ptr<const Order> shuffled_order(const Dataset& dataset, uint64_t seed,
                                            const ShardWindow& window) {
  const auto ends = dataset.shard_ends();
  if (ends.empty()) return std::make_shared<Shuffled>(dataset.size(), seed);
  return std::make_shared<ShuffledShards>(dataset.size(), ends, seed, window.shards);
}

std::shared_ptr<const Order> order_without_data(const std::string& text, int64_t size,
                                                uint64_t seed) {
  const auto shuffled = std::make_shared<const Shuffled>(size, seed);
  if (text == shuffled->text()) return shuffled;
  return text == sequential_order()->text() ? sequential_order() : nullptr;
}

std::shared_ptr<const Order> ShuffledConfig::order(const Dataset& dataset,
                                                   const OrderOptions& options) const {
  return shuffled_order(dataset, options.seed, window);
}

}  // namespace brim::data
