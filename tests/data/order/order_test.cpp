// Orders: every property that training relies on, over many sizes, shards and windows. What each
// sampler promises beside is sampler_test.cpp's.
#include "framework/data/order/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/data/loading/loader.h"
#include "framework/data/samplers/class_balanced.h"
#include "framework/data/samplers/length_bucketed.h"
#include "framework/data/samplers/repeated.h"
#include "framework/data/samplers/sequential.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/samplers/weighted.h"
#include "tests/data/numbers.h"
#include "tests/support/temporary_folder.h"

namespace brim::data {
namespace {

/// Sizes of shards, some of them empty.
const std::vector<std::vector<int64_t>> kLayouts = {
    {1},          {7},          {1, 1, 1, 1},          {0, 5, 0, 0, 3, 0},
    {10, 20, 30}, {100, 1, 50}, {3, 3, 3, 3, 3, 3, 2}, std::vector<int64_t>(40, 6)};

TEST(OrderTest, ShuffledIsTheKeyedPermutation) {
  for (const int64_t size : {1, 2, 3, 10, 64, 100, 1000}) {
    const Numbers dataset(size);
    const auto order = ShuffledConfig().order(dataset, {.seed = 5});
    for (const int64_t epoch : {0, 1, 7}) {
      const KeyedPermutation expected(5, static_cast<uint64_t>(epoch), size);
      for (int64_t i = 0; i < size; ++i) {
        EXPECT_EQ(order->at(epoch, i), (SampleRef{expected(i), expected(i)}));
      }
    }
  }
}

TEST(OrderTest, ShuffledShardsGiveEachSampleOnceAnEpoch) {
  for (const auto& sizes : kLayouts) {
    const Numbers dataset = sharded(sizes);
    for (const int64_t window : {1, 2, 3, 16, 1000}) {
      ShuffledConfig config;
      config.window.shards = window;
      const auto order = config.order(dataset, {.seed = 9});
      std::set<std::vector<int64_t>> epochs;
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        const auto samples = epoch_of(*order, epoch, dataset.size());
        EXPECT_EQ(sorted(samples), all(dataset.size())) << window;
        epochs.insert(samples);
      }
      if (dataset.size() < 20) continue;  // few orders to choose from
      EXPECT_EQ(epochs.size(), 4) << window;
      const auto other = config.order(dataset, {.seed = 10});
      EXPECT_FALSE(epochs.contains(epoch_of(*other, 0, dataset.size())));
    }
  }
}

TEST(OrderTest, AWindowHoldsNoMoreShardsThanItMay) {
  const Numbers dataset = sharded(std::vector<int64_t>(40, 6));
  ShuffledConfig config;
  config.window.shards = 4;
  const auto order = config.order(dataset, {.seed = 1});
  std::vector<int64_t> windows_of_shard_zero;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto samples = epoch_of(*order, epoch, dataset.size());
    for (size_t window = 0; window < 10; ++window) {
      std::set<int64_t> shards;
      bool mixed = false;
      for (size_t i = window * 24; i < (window + 1) * 24; ++i) {
        shards.insert(samples[i] / 6);
        if (samples[i] == 0) windows_of_shard_zero.push_back(static_cast<int64_t>(window));
        mixed |= i % 24 != 0 && samples[i] / 6 != samples[i - 1] / 6 && i % 6 != 0;
      }
      EXPECT_EQ(shards.size(), 4);
      EXPECT_TRUE(mixed);
    }
  }
  EXPECT_GT(std::set(windows_of_shard_zero.begin(), windows_of_shard_zero.end()).size(), 1);
}

TEST(OrderTest, ShardsThatDoNotAddUpAreABug) {
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{4}, {6}, {3, 2, 5}, {-1, 5}}) {
    Numbers dataset(5);
    dataset.ends = ends;
    EXPECT_THROW(ShuffledConfig().order(dataset, {}), Error);
  }
}

/// Every sampler, over a dataset that has all they go by.
class EveryOrder {
 public:
  EveryOrder() : dataset_(sharded({30, 1, 0, 25, 40, 5})) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < dataset_.size(); ++i) {
      labels.push_back(i * i % 11 % 5);
      dataset_.lengths.push_back(i * 37 % 23);
    }
    dataset_.set_labels(labels, 6);
    std::string weights;
    for (int64_t i = 0; i < dataset_.size(); ++i) weights += std::to_string(i % 4) + "\n";
    weighted_.weights = folder_.path() / "weights.txt";
    write_file(weighted_.weights, weights);
  }

  const Numbers& dataset() const { return dataset_; }
  std::vector<std::shared_ptr<const Order>> make(int64_t global_batch) const {
    const OrderOptions options = {.seed = 3, .global_batch = global_batch};
    LengthBucketedConfig by_length;
    by_length.batches = 3;
    return {
        ShuffledConfig().order(dataset_, options),      SequentialConfig().order(dataset_, options),
        ClassBalancedConfig().order(dataset_, options), weighted_.order(dataset_, options),
        RepeatedConfig().order(dataset_, options),      by_length.order(dataset_, options)};
  }

 private:
  testing::TemporaryFolder folder_;
  Numbers dataset_;
  WeightedConfig weighted_;
};

using PlanBytes = std::vector<uint8_t>;

/// The samples of each step, as bytes in order of position; ranks one after the other.
std::vector<PlanBytes> steps_of(const Dataset& dataset, LoaderOptions options, int64_t epoch = 0,
                                int64_t step = 0) {
  std::map<int64_t, PlanBytes> steps;
  const int64_t per_epoch = steps_per_epoch(dataset.size(), options.global_batch, false);
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    Loader loader(dataset, options, epoch, step);
    while (const Batch* batch = loader.next()) {
      PlanBytes& bytes = steps[batch->epoch * per_epoch + batch->step];
      bytes.insert(bytes.end(), batch->pixels.begin(), batch->pixels.end());
    }
  }
  std::vector<PlanBytes> result;
  for (auto& [number, bytes] : steps) result.push_back(std::move(bytes));
  return result;
}

TEST(OrderTest, EveryOrderIsTheSameForAnyWorkersAndRanksAndAfterAJump) {
  const EveryOrder every;
  const Numbers& dataset = every.dataset();
  for (const auto& order : every.make(12)) {
    SCOPED_TRACE(order->text());
    LoaderOptions options = {.global_batch = 12,
                             .micro_batch = 5,
                             .seed = 3,
                             .order = order,
                             .augment = true,
                             .epochs = 3};
    const auto expected = steps_of(dataset, options);
    ASSERT_EQ(expected.size(), 3 * 9);
    for (const int64_t workers : {1, 2, 7}) {
      options.workers = workers;
      EXPECT_EQ(steps_of(dataset, options), expected) << workers;
    }
    for (const int64_t world : {2, 3}) {
      options.world = world;
      EXPECT_EQ(steps_of(dataset, options), expected) << world;
    }
    options.world = 1;
    options.epochs = 2;
    EXPECT_EQ(steps_of(dataset, options, 1, 4),
              (std::vector<PlanBytes>{expected.begin() + 9 + 4, expected.end()}));
  }
  // Orders rebuilt say the same, whatever they are asked first.
  const auto orders = every.make(12);
  const auto again = every.make(12);
  for (size_t i = 0; i < orders.size(); ++i) {
    SCOPED_TRACE(orders[i]->text());
    EXPECT_EQ(orders[i]->text(), again[i]->text());
    std::vector<std::vector<int64_t>> forth(4), back(4);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      forth[static_cast<size_t>(epoch)] = epoch_of(*orders[i], epoch, dataset.size());
    }
    for (int64_t position = dataset.size() - 1; position >= 0; --position) {
      for (size_t epoch = 4; epoch-- > 0;) {
        back[epoch].push_back(again[i]->at(static_cast<int64_t>(epoch), position).sample);
      }
    }
    for (auto& samples : back) std::ranges::reverse(samples);
    EXPECT_EQ(back, forth);
    EXPECT_EQ(forth[0] == forth[1], orders[i]->text() == "sequential");
  }
}

TEST(OrderTest, ThreadsMayAskForDifferentEpochs) {
  const EveryOrder every;
  const int64_t size = every.dataset().size();
  for (const auto& order : every.make(8)) {
    std::vector<std::vector<int64_t>> expected;
    for (int64_t epoch = 0; epoch < 6; ++epoch) expected.push_back(epoch_of(*order, epoch, size));
    std::vector<std::vector<int64_t>> found(6);
    std::vector<std::jthread> threads;
    for (size_t epoch = 0; epoch < 6; ++epoch) {
      threads.emplace_back([&order, &found, epoch, size] {
        found[epoch] = epoch_of(*order, static_cast<int64_t>(epoch), size);
      });
    }
    threads.clear();
    EXPECT_EQ(found, expected) << order->text();
  }
}

}  // namespace
}  // namespace brim::data
