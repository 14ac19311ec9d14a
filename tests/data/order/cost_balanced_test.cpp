// Ranks' costs in each global batch, over lengths as texts have them.
#include "framework/data/order/cost_balanced.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "framework/base/random.h"
#include "framework/data/loading/loader.h"
#include "framework/data/order/rank_partition.h"
#include "framework/data/samplers/shuffled.h"
#include "tests/data/numbers.h"

namespace brim::data {
namespace {

constexpr int64_t kBatch = 256;

/// Lengths whose logarithm is spread as a normal distribution's, from 16 to 2,048: most are short.
Numbers texts(int64_t size) {
  Numbers dataset(size);
  for (int64_t i = 0; i < size; ++i) {
    RandomStream random(3, static_cast<uint64_t>(i), 0);
    double normal = -6;
    for (int draw = 0; draw < 12; ++draw) normal += random.uniform();
    dataset.lengths.push_back(std::clamp<int64_t>(std::llround(std::exp(5 + normal)), 16, 2048));
  }
  return dataset;
}

/// The most loaded rank's cost in a step, relative to the mean.
double imbalance(const Order& order, const Numbers& dataset, int64_t step, int64_t world) {
  double most = 0, total = 0;
  for (int64_t rank = 0; rank < world; ++rank) {
    const PositionRange part = split(kBatch, world, rank);
    double cost = 0;
    for (int64_t i = 0; i < part.count; ++i) {
      cost +=
          static_cast<double>(*dataset.length(order.at(0, step * kBatch + part.first + i).sample));
    }
    most = std::max(most, cost);
    total += cost;
  }
  return most * static_cast<double>(world) / total;
}

TEST(CostBalancedOrder, NoRankHasMoreThanATwentiethOverTheMean) {
  const Numbers dataset = texts(20 * kBatch);
  const auto shuffled = ShuffledConfig().order(dataset, {.seed = 1});
  for (const int64_t world : {2, 3, 4, 8}) {
    const auto order = cost_balanced_order(shuffled, dataset, kBatch, world);
    double as_they_come = 0;
    for (int64_t step = 0; step < 20; ++step) {
      EXPECT_LE(imbalance(*order, dataset, step, world), 1.05) << world << " ranks";
      as_they_come = std::max(as_they_come, imbalance(*shuffled, dataset, step, world));
    }
    EXPECT_GT(as_they_come, 1.1) << "the test can't fail";
  }
}

TEST(CostBalancedOrder, EachBatchKeepsItsSamples) {
  const Numbers dataset = texts(1000);  // a short batch is the last
  const auto shuffled = ShuffledConfig().order(dataset, {.seed = 1});
  const auto order = cost_balanced_order(shuffled, dataset, 64, 3);
  for (int64_t first = 0; first < 1000; first += 64) {
    std::set<int64_t> before, after;
    for (int64_t i = first; i < std::min<int64_t>(first + 64, 1000); ++i) {
      before.insert(shuffled->at(2, i).sample);
      after.insert(order->at(2, i).sample);
    }
    EXPECT_EQ(before, after);
  }
  EXPECT_EQ(order->text(), shuffled->text());
}

TEST(CostBalancedOrder, ThroughTheLoaderEveryRankHasItsPart) {
  const Numbers dataset = texts(300);
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    LoaderOptions options{
        .global_batch = 50, .micro_batch = 50, .workers = 2, .rank = rank, .world = 3, .epochs = 1};
    options.order =
        cost_balanced_order(ShuffledConfig().order(dataset, {.seed = 1}), dataset, 50, 3);
    Loader loader(dataset, options);
    while (const Batch* batch = loader.next()) {
      for (int64_t i = 0; i < batch->count; ++i) {
        const uint8_t* bytes = batch->pixels.data() + 8 * i;
        seen.insert(bytes[0] + 256 * bytes[1]);
      }
    }
  }
  EXPECT_EQ(seen.size(), 300);
  EXPECT_EQ((std::set<int64_t>(seen.begin(), seen.end()).size()), 300);
}

TEST(BalanceCosts, EqualCostsAndFewSamples) {
  EXPECT_EQ(balance_costs(std::vector<int64_t>{}, 4), (std::vector<int64_t>{}));
  EXPECT_EQ(balance_costs(std::vector<int64_t>{7}, 4), (std::vector<int64_t>{0}));
  EXPECT_EQ(balance_costs(std::vector<int64_t>{9, 1, 8, 2}, 2), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(CostBalancedOrder, SamplesThatAreAlikeAreAnError) {
  const Numbers dataset(10);
  EXPECT_THROW(cost_balanced_order(sequential_order(), dataset, 4, 2), Error);
}

}  // namespace
}  // namespace brim::data
