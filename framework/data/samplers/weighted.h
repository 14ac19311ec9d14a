// `name = "weighted"`: samples drawn with replacement, each in proportion to its weight.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "framework/data/sampler.h"

namespace brim::data {

/// An epoch draws as many samples as the dataset has; any may come again or not at all. Shards are
/// read at random. Memory is two numbers per sample, once.
struct WeightedConfig : SamplerConfig {
  std::filesystem::path weights;

  void fields(recipe::Fields& f) override;
  std::shared_ptr<const Order> order(const Dataset& dataset,
                                     const OrderOptions& options) const override;
};

/// The `count` numbers of a text, one a line. Throws Error(kData) naming the line of one that is
/// negative or no number, and where there are more or less, or where all are 0.
std::vector<double> parse_weights(std::string_view text, int64_t count, const std::string& name);

}  // namespace brim::data
