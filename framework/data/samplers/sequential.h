// `name = "sequential"`: in the dataset's own order.
#pragma once

#include "framework/data/sampler.h"

namespace brim::data {

struct SequentialConfig : SamplerConfig {
  void fields(recipe::Fields&) override {}
  std::shared_ptr<const Order> order(const Dataset&, const OrderOptions&) const override {
    return sequential_order();
  }
};

}  // namespace brim::data
