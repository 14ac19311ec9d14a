// `name = "repeated"`: shuffled, with each sample at several positions close by and another
// augmentation at each. Repeated augmentation: Hoffer et al., "Augment your batch", CVPR 2020;
// Berman et al., "MultiGrain", 2019.
#pragma once

#include "framework/data/sampler.h"
#include "framework/data/samplers/shuffled.h"

namespace brim::data {

/// An epoch keeps its length, so a sample comes in one of `repeats` epochs: a pass over the dataset
/// takes that many. Two samples take turns, a b a b a b: mixup and cutmix, which pair neighbours,
/// would else mix a sample with itself. Repeats share a global batch where 2 · repeats divides it.
struct RepeatedConfig : SamplerConfig {
  int64_t repeats = 3;
  ShardWindow window;

  void fields(recipe::Fields& f) override;
  std::shared_ptr<const Order> order(const Dataset& dataset,
                                     const OrderOptions& options) const override;
};

}  // namespace brim::data
