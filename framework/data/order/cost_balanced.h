// Ranks that are equally busy on samples of different lengths: which rank takes which sample of a
// global batch follows their cost. What a batch holds stays the same.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/order/order.h"

namespace brim::data {

/// Places 0 … costs.size() - 1 in a new order: split() over `world` ranks then gives each the usual
/// number of samples, and sums of costs as equal as a greedy choice makes them: the dearest first,
/// each to the rank with room that has the smallest sum (Graham, "Bounds on multiprocessing timing
/// anomalies", SIAM 1969). A rank's samples keep their order.
std::vector<int64_t> balance_costs(std::span<const int64_t> costs, int64_t world);

/// `order` with the positions of each global batch so rearranged; a sample's length is its cost.
/// The dataset outlives the order. Throws Error(kRecipe) where all samples are alike.
std::shared_ptr<const Order> cost_balanced_order(std::shared_ptr<const Order> order,
                                                 const Dataset& dataset, int64_t global_batch,
                                                 int64_t world);

}  // namespace brim::data
