// The order of training samples as a recipe names it: `[data.sampler] name = "shuffled"` and that
// sampler's own keys.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/data/dataset.h"
#include "framework/data/order/order.h"
#include "framework/recipe/registry.h"

namespace brim::data {

/// What an order depends on besides the dataset and the sampler's keys.
struct OrderOptions {
  uint64_t seed = 0;
  int64_t global_batch = 1;  // samples of one optimizer step, over all ranks
};

/// Base of every sampler's config struct.
class SamplerConfig : public recipe::Config {
 public:
  /// The dataset outlives the order. Throws Error(kRecipe) where it lacks what the sampler goes by,
  /// Error(kData) for a bad file.
  virtual std::shared_ptr<const Order> order(const Dataset& dataset,
                                             const OrderOptions& options) const = 0;
};

/// What the random choices of an order are for: each has numbers of its own under one seed.
enum class Choice : uint64_t { kShards = 1, kWindow, kClass, kMember, kWeighted, kBatches };

/// The seed of one kind of choice, and of the `number`-th of its kind.
uint64_t choice_seed(uint64_t seed, Choice choice, int64_t number = 0);

/// Registers class_balanced, length_bucketed, repeated, sequential, shuffled, weighted; call once
/// at program start.
void register_samplers();

}  // namespace brim::data
