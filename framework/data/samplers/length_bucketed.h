// `name = "length_bucketed"`: shuffled, in batches of samples of similar length, so that little of
// a batch is padding.
#pragma once

#include "framework/data/sampler.h"
#include "framework/data/samplers/shuffled.h"

namespace brim::data {

/// The shuffled positions are cut into windows of `batches` global batches; a window's samples are
/// sorted by length and its batches then come in random order. Each sample comes once an epoch.
/// Memory is two windows; a jump to another window costs sorting that one.
struct LengthBucketedConfig : SamplerConfig {
  int64_t batches = 64;
  ShardWindow window;

  void fields(recipe::Fields& f) override;
  std::shared_ptr<const Order> order(const Dataset& dataset,
                                     const OrderOptions& options) const override;
};

}  // namespace brim::data
