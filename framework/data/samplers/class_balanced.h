// `name = "class_balanced"`: each class as often as any other, whatever their sizes.
#pragma once

#include "framework/data/sampler.h"

namespace brim::data {

/// Positions go in rounds of each class once, in an order drawn for the round; within a class no
/// sample comes again before all others came, from epoch to epoch too. Classes without samples are
/// left out. Shards are read at random. Memory is a number per sample, once.
struct ClassBalancedConfig : SamplerConfig {
  void fields(recipe::Fields&) override {}
  std::shared_ptr<const Order> order(const Dataset& dataset,
                                     const OrderOptions& options) const override;
};

}  // namespace brim::data
