// Orders: every property that training relies on, over many sizes, shards and windows.
#include "framework/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/data/loader.h"
#include "framework/data/samplers/class_balanced.h"
#include "framework/data/samplers/length_bucketed.h"
#include "framework/data/samplers/repeated.h"
#include "framework/data/samplers/sequential.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/samplers/weighted.h"
#include "tests/telemetry/temporary_folder.h"

namespace brim::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Samples of 8 bytes: their number, and one drawn for their augmentation.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t sample_bytes() const override { return 8; }
  std::string name(int64_t index) const override { return std::to_string(index); }
  int64_t classes() const override { return classes_; }
  int64_t label(int64_t index) const override {
    return labels.empty() ? 0 : labels[static_cast<size_t>(index)];
  }
  std::optional<int64_t> length(int64_t index) const override {
    if (lengths.empty()) return std::nullopt;
    return lengths[static_cast<size_t>(index)];
  }
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const override {
    if (index == bad) throw Error(Exit::kData, name(index) + " is bad");
    for (int64_t i = 0; i < 4; ++i) bytes[static_cast<size_t>(i)] = index >> (8 * i) & 255;
    const uint32_t drawn = random == nullptr ? 0 : random->next_u32();
    for (int64_t i = 0; i < 4; ++i) bytes[static_cast<size_t>(4 + i)] = drawn >> (8 * i) & 255;
    return label(index);
  }
  std::span<const int64_t> shard_ends() const override { return ends; }

  void set_labels(std::vector<int64_t> values, int64_t classes) {
    labels = std::move(values);
    classes_ = classes;
  }
  std::vector<int64_t> ends;
  std::vector<int64_t> labels;
  std::vector<int64_t> lengths;
  int64_t bad = -1;  // can't be read

 private:
  int64_t size_;
  int64_t classes_ = 0;
};

Numbers sharded(const std::vector<int64_t>& sizes) {
  Numbers dataset(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  std::partial_sum(sizes.begin(), sizes.end(), std::back_inserter(dataset.ends));
  return dataset;
}

std::vector<int64_t> epoch_of(const Order& order, int64_t epoch, int64_t size) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < size; ++i) samples.push_back(order.at(epoch, i).sample);
  return samples;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<int64_t> all(int64_t size) {
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

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
        EXPECT_EQ(order->at(epoch, i), (Draw{expected(i), expected(i)}));
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

using Bytes = std::vector<uint8_t>;

/// The samples of each step, as bytes in order of position; ranks one after the other.
std::vector<Bytes> steps_of(const Dataset& dataset, LoaderOptions options, int64_t epoch = 0,
                            int64_t step = 0) {
  std::map<int64_t, Bytes> steps;
  const int64_t per_epoch = steps_per_epoch(dataset.size(), options.global_batch, false);
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    Loader loader(dataset, options, epoch, step);
    while (const Batch* batch = loader.next()) {
      Bytes& bytes = steps[batch->epoch * per_epoch + batch->step];
      bytes.insert(bytes.end(), batch->pixels.begin(), batch->pixels.end());
    }
  }
  std::vector<Bytes> result;
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
              (std::vector<Bytes>{expected.begin() + 9 + 4, expected.end()}));
  }
  // Orders made anew say the same, whatever they are asked first.
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

TEST(OrderTest, RepeatsAreCloseByButNotNeighboursAndAugmentedDifferently) {
  for (const int64_t size : {1, 2, 5, 9, 10, 11}) {
    const Numbers dataset(size);
    const auto order = RepeatedConfig().order(dataset, {.seed = 2, .global_batch = 3});
    std::vector<int64_t> samples;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      std::set<std::pair<int64_t, int64_t>> augmentations;
      for (int64_t i = 0; i < size; ++i) {
        const Draw draw = order->at(epoch, i);
        samples.push_back(draw.sample);
        EXPECT_TRUE(augmentations.insert({draw.sample, draw.stream}).second);
      }
    }
    for (int64_t pass = 0; pass < 2; ++pass) {  // three epochs each
      std::vector<int64_t> seen;
      for (int64_t i = 0; i < size; i += 2) {
        const auto first = samples.begin() + (pass * size + i) * 3;
        const int64_t a = *first;
        seen.push_back(a);
        if (i + 1 == size) {
          EXPECT_THAT(std::vector(first, first + 3), Each(a));
        } else {
          const int64_t b = *(first + 1);
          seen.push_back(b);
          EXPECT_THAT(std::vector(first, first + 6), ElementsAre(a, b, a, b, a, b));
        }
      }
      EXPECT_EQ(sorted(seen), all(size));
    }
  }
}

TEST(OrderTest, RepeatsGetDifferentRandomNumbersFromTheLoader) {
  const Numbers dataset(9);
  const auto order = RepeatedConfig().order(dataset, {.seed = 2, .global_batch = 9});
  Loader loader(dataset, {.global_batch = 9, .micro_batch = 9, .order = order, .augment = true});
  const Batch& batch = *loader.next();
  std::set<std::vector<uint8_t>> different, samples;
  for (size_t i = 0; i < 9; ++i) {
    const auto bytes = batch.pixels.subspan(i * 8, 8);
    different.insert({bytes.begin(), bytes.end()});
    samples.insert({bytes.begin(), bytes.begin() + 4});
  }
  EXPECT_EQ(different.size(), 9);
  EXPECT_EQ(samples.size(), 4);
}

TEST(OrderTest, ClassesAreEquallyOftenAndSamplesUsedUpBeforeTheyComeAgain) {
  for (const auto& counts :
       {std::vector<int64_t>{1}, {3, 3}, {1, 9}, {20, 0, 1, 7}, {1, 2, 3, 4}}) {
    std::vector<int64_t> labels;
    for (size_t c = 0; c < counts.size(); ++c) {
      labels.insert(labels.end(), static_cast<size_t>(counts[c]), static_cast<int64_t>(c));
    }
    // Classes are spread over the dataset.
    std::vector<int64_t> spread(labels.size());
    const KeyedPermutation shuffle(1, 1, static_cast<int64_t>(labels.size()));
    for (size_t i = 0; i < labels.size(); ++i) {
      spread[static_cast<size_t>(shuffle(static_cast<int64_t>(i)))] = labels[i];
    }
    Numbers dataset(static_cast<int64_t>(labels.size()));
    dataset.set_labels(spread, static_cast<int64_t>(counts.size()));
    const auto order = ClassBalancedConfig().order(dataset, {.seed = 4});

    std::map<int64_t, std::vector<int64_t>> drawn;  // over all epochs, by class
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      std::map<int64_t, int64_t> in_epoch;
      for (const int64_t sample : epoch_of(*order, epoch, dataset.size())) {
        drawn[dataset.label(sample)].push_back(sample);
        ++in_epoch[dataset.label(sample)];
      }
      std::vector<int64_t> times;
      for (const auto& [label, count] : in_epoch) times.push_back(count);
      const auto [least, most] = std::ranges::minmax(times);
      EXPECT_LE(most - least, 1);
    }
    size_t least = SIZE_MAX, most = 0;
    for (size_t c = 0; c < counts.size(); ++c) {
      const auto& samples = drawn[static_cast<int64_t>(c)];
      const auto count = static_cast<size_t>(counts[c]);
      if (count == 0) {
        EXPECT_TRUE(samples.empty());
        continue;
      }
      least = std::min(least, samples.size());
      most = std::max(most, samples.size());
      for (size_t pass = 0; (pass + 1) * count <= samples.size(); ++pass) {
        const auto first = samples.begin() + static_cast<int64_t>(pass * count);
        EXPECT_EQ((std::set(first, first + static_cast<int64_t>(count)).size()), count);
      }
    }
    EXPECT_LE(most - least, 1);
  }
}

TEST(OrderTest, ClassBalancedNeedsClasses) {
  try {
    ClassBalancedConfig().order(Numbers(4), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_THAT(error.what(), HasSubstr("expected data with classes"));
  }
}

TEST(OrderTest, WeightedDrawsInProportion) {
  const testing::TemporaryFolder folder;
  WeightedConfig config;
  config.weights = folder.path() / "w.txt";
  const std::vector<double> weights = {1, 0, 2.5, 1e-3, 6, 0.499};
  write_file(config.weights, "1\n0\n 2.5\r\n1e-3\n6\n0.499\n\n");
  const Numbers dataset(6);
  const auto order = config.order(dataset, {.seed = 8});
  std::vector<int64_t> counts(6);
  constexpr int64_t kEpochs = 50'000;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::set<int64_t> streams;
    for (int64_t i = 0; i < 6; ++i) {
      const Draw draw = order->at(epoch, i);
      ++counts[static_cast<size_t>(draw.sample)];
      streams.insert(draw.stream);
    }
    EXPECT_EQ(streams.size(), 6);
  }
  EXPECT_EQ(counts[1], 0);
  for (size_t i = 0; i < 6; ++i) {
    const double n = 6 * kEpochs;
    const double p = weights[i] / 10;
    EXPECT_NEAR(static_cast<double>(counts[i]), n * p, 5 * std::sqrt(n * p) + 1) << i;
  }
  // Another file is another order.
  const std::string before = order->text();
  write_file(config.weights, "1\n1\n1\n1\n1\n1");
  EXPECT_NE(config.order(dataset, {.seed = 8})->text(), before);
}

TEST(OrderTest, ABadSampleIsReplacedByOneOfTheSameOrder) {
  const testing::TemporaryFolder folder;
  WeightedConfig config;
  config.weights = folder.path() / "w.txt";
  write_file(config.weights, "1\n0\n1\n0\n1\n0\n0\n0");
  Numbers dataset(8);
  dataset.bad = 4;
  Loader loader(dataset, {.global_batch = 8,
                          .micro_batch = 8,
                          .order = config.order(dataset, {.seed = 8}),
                          .epochs = 20,
                          .on_error = OnError::kReplace});
  while (const Batch* batch = loader.next()) {
    for (size_t i = 0; i < 8; ++i) EXPECT_THAT(batch->pixels[8 * i], ::testing::AnyOf(0, 2));
  }
  EXPECT_EQ(loader.skipped(), 1);
}

TEST(OrderTest, WeightsOfAnySizeAreDrawn) {
  for (const char* text : {"0\n0\n5e-324", "0\n0\n1.7e308", "1.7e308\n1.7e308\n1.7e308"}) {
    const testing::TemporaryFolder folder;
    WeightedConfig config;
    config.weights = folder.path() / "w.txt";
    write_file(config.weights, text);
    const auto order = config.order(Numbers(3), {.seed = 8});
    std::set<int64_t> drawn;
    for (int64_t i = 0; i < 300; ++i) drawn.insert(order->at(i, 0).sample);
    EXPECT_EQ(drawn, text[0] == '0' ? std::set<int64_t>{2} : (std::set<int64_t>{0, 1, 2}));
  }
}

TEST(OrderTest, SaysWhatIsWrongWithWeights) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      parse_weights(text, 3, "w.txt");
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("1\n2\n3"), "no error");
  EXPECT_EQ(error("1\n2\nthree\n"),
            "w.txt:3: expected a weight, a number of at least 0, found 'three'");
  EXPECT_THAT(error("1\n\n3"), HasSubstr("w.txt:2: expected a weight"));
  EXPECT_THAT(error("1 1\n2\n3"), HasSubstr("w.txt:1: expected a weight"));
  EXPECT_THAT(error("1\n-2\n3"), HasSubstr("found '-2'"));
  EXPECT_THAT(error("nan\n2\n3"), HasSubstr("w.txt:1"));
  EXPECT_THAT(error("1\n1e999\n3"), HasSubstr("w.txt:2"));
  EXPECT_EQ(error("1\n2"),
            "w.txt: expected a weight for each of the 3 training samples, one a line, found 2");
  EXPECT_THAT(error("1\n2\n3\n4"), HasSubstr("found 4"));
  EXPECT_THAT(error(""), HasSubstr("found 0"));
  EXPECT_EQ(error("0\n0\n0"), "w.txt: expected a weight above 0, found none");
}

TEST(OrderTest, BatchesByLengthHoldSimilarSamplesAndEachComesOnce) {
  for (const int64_t size : {1, 7, 100, 103}) {
    for (const int64_t batch : {1, 4, 10, 1000}) {
      for (const int64_t batches : {1, 3, 1'000'000}) {
        Numbers dataset(size);
        for (int64_t i = 0; i < size; ++i) dataset.lengths.push_back(i * 41 % 53);
        LengthBucketedConfig config;
        config.batches = batches;
        const auto order = config.order(dataset, {.seed = 6, .global_batch = batch});
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          const auto samples = epoch_of(*order, epoch, size);
          EXPECT_EQ(sorted(samples), all(size));
          // Within a window batches don't overlap in length.
          const int64_t window = std::min(batch * batches, size);
          for (int64_t first = 0; first < size; first += window) {
            std::vector<std::pair<int64_t, int64_t>> ranges;
            const int64_t end = std::min(first + window, size);
            for (int64_t start = first; start < end; start += batch) {
              std::vector<int64_t> lengths;
              for (int64_t i = start; i < std::min(start + batch, end); ++i) {
                lengths.push_back(*dataset.length(samples[static_cast<size_t>(i)]));
              }
              ranges.emplace_back(std::ranges::min(lengths), std::ranges::max(lengths));
            }
            std::ranges::sort(ranges);
            for (size_t i = 1; i < ranges.size(); ++i) {
              EXPECT_LE(ranges[i - 1].second, ranges[i].first);
            }
          }
        }
      }
    }
  }
}

TEST(OrderTest, BatchesByLengthComeInRandomOrder) {
  Numbers dataset(400);
  for (int64_t i = 0; i < 400; ++i) dataset.lengths.push_back(i);
  const auto order = LengthBucketedConfig().order(dataset, {.seed = 6, .global_batch = 4});
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < 64; ++i) starts.push_back(*dataset.length(order->at(0, 4 * i).sample));
  EXPECT_FALSE(std::ranges::is_sorted(starts));
}

TEST(OrderTest, BatchesByLengthNeedLengths) {
  try {
    LengthBucketedConfig().order(Numbers(4), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_THAT(error.what(), HasSubstr("expected samples that differ in length"));
  }
}

}  // namespace
}  // namespace brim::data
