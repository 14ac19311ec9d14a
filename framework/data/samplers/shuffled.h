// `name = "shuffled"`: each sample once an epoch, in an order that changes with the epoch.
#pragma once

#include "framework/data/sampler.h"

namespace brim::data {

/// The key that orders over shards have: how far a sample strays from its shard.
struct ShardWindow {
  int64_t shards = 16;

  void fields(recipe::Fields& f) {
    f.value("window", shards,
            "shards whose samples are mixed with each other, where data comes in shards",
            recipe::between(1, 1e9));
  }
};

struct ShuffledConfig : SamplerConfig {
  ShardWindow window;

  void fields(recipe::Fields& f) override { window.fields(f); }
  std::shared_ptr<const Order> order(const Dataset& dataset,
                                     const OrderOptions& options) const override;
};

/// Without shards the position is KeyedPermutation(seed, epoch, size)'s. With shards those are
/// permuted and cut into windows, and the positions of a window are permuted: a reader needs no
/// more than a window's shards at a time. Memory is a number per shard for each of two epochs.
std::shared_ptr<const Order> shuffled_order(const Dataset& dataset, uint64_t seed,
                                            const ShardWindow& window);

/// The order with this text() where nothing of the dataset but its size decides it; else null.
std::shared_ptr<const Order> order_without_data(const std::string& text, int64_t size,
                                                uint64_t seed);

}  // namespace brim::data
