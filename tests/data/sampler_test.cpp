// What each sampler promises of the samples that it gives. What holds for all of them is
// order_test.cpp's.
#include "framework/data/sampler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/data/loading/loader.h"
#include "framework/data/order/cost_balanced.h"
#include "framework/data/samplers/class_balanced.h"
#include "framework/data/samplers/length_bucketed.h"
#include "framework/data/samplers/repeated.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/samplers/weighted.h"
#include "tests/data/numbers.h"
#include "tests/support/temporary_folder.h"

namespace brim::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SamplerTest, RepeatsAreCloseByButNotNeighboursAndAugmentedDifferently) {
  for (const int64_t size : {1, 2, 5, 9, 10, 11}) {
    const Numbers dataset(size);
    const auto order = RepeatedConfig().order(dataset, {.seed = 2, .global_batch = 3});
    std::vector<int64_t> samples;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      std::set<std::pair<int64_t, int64_t>> augmentations;
      for (int64_t i = 0; i < size; ++i) {
        const SampleRef ref = order->at(epoch, i);
        samples.push_back(ref.sample);
        EXPECT_TRUE(augmentations.insert({ref.sample, ref.stream}).second);
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

TEST(SamplerTest, RepeatsGetDifferentRandomNumbersFromTheLoader) {
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

TEST(SamplerTest, ClassesAreEquallyOftenAndSamplesUsedUpBeforeTheyComeAgain) {
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

TEST(SamplerTest, ClassBalancedNeedsClasses) {
  try {
    ClassBalancedConfig().order(Numbers(4), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_THAT(error.what(), HasSubstr("expected data with classes"));
  }
}

/// A file with these weights, and the order that it makes.
std::shared_ptr<const Order> weighted(const testing::TemporaryFolder& folder,
                                      const std::string& text, int64_t size) {
  WeightedConfig config;
  config.weights = folder.path() / "w.txt";
  write_file(config.weights, text);
  return config.order(Numbers(size), {.seed = 8});
}

// Setting up the ref leaves one number over that rounding has put just below its fair share (0 1 6
// and 0 1 2 3), exactly there (1 1 1), or above it.
TEST(SamplerTest, WeightedDrawsInProportion) {
  const testing::TemporaryFolder folder;
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 0, 2.5, 1e-3, 6, 0.499}, {0, 1, 6}, {0, 1, 2, 3}, {1, 1, 1}, {5}}) {
    std::string text;
    for (const double weight : weights) text += fmt::format("{}\n", weight);
    SCOPED_TRACE(text);
    const auto size = static_cast<int64_t>(weights.size());
    const auto order = weighted(folder, text, size);
    std::vector<int64_t> counts(weights.size());
    constexpr int64_t kEpochs = 50'000;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (int64_t i = 0; i < size; ++i) {
        const SampleRef ref = order->at(epoch, i);
        ++counts[static_cast<size_t>(ref.sample)];
        EXPECT_EQ(ref.stream, i);
      }
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < weights.size(); ++i) {
      const double expected = static_cast<double>(size * kEpochs) * weights[i] / sum;
      const double spread = weights[i] > 0 ? 5 * std::sqrt(expected) + 1 : 0;
      EXPECT_NEAR(static_cast<double>(counts[i]), expected, spread) << i;
    }
  }
}

TEST(SamplerTest, OtherWeightsAreAnotherOrder) {
  const testing::TemporaryFolder folder;
  const auto order = weighted(folder, "1\n0\n 2.5\r\n1e-3\n6\n0.499\n\n", 6);
  EXPECT_NE(weighted(folder, "1\n1\n1\n1\n1\n1", 6)->text(), order->text());
}

TEST(SamplerTest, ABadSampleIsReplacedByOneOfTheSameOrder) {
  const testing::TemporaryFolder folder;
  Numbers dataset(8);
  dataset.bad = 4;
  Loader loader(dataset, {.global_batch = 8,
                          .micro_batch = 8,
                          .order = weighted(folder, "1\n0\n1\n0\n1\n0\n0\n0", 8),
                          .epochs = 20,
                          .on_error = OnError::kReplace});
  while (const Batch* batch = loader.next()) {
    for (size_t i = 0; i < 8; ++i) EXPECT_THAT(batch->pixels[8 * i], ::testing::AnyOf(0, 2));
  }
  EXPECT_EQ(loader.skipped(), 1);
}

TEST(SamplerTest, OrdersSayWhetherTheyGiveEachSampleOnce) {
  const testing::TemporaryFolder folder;
  Numbers dataset(103);
  dataset.set_labels(std::vector<int64_t>(103, 1), 2);
  const ShardWindow window;
  EXPECT_TRUE(sequential_order()->is_permutation());
  EXPECT_TRUE(shuffled_order(dataset, 7, window)->is_permutation());
  const std::vector<std::shared_ptr<const Order>> repeating = {
      RepeatedConfig().order(dataset, {.seed = 7}),
      ClassBalancedConfig().order(dataset, {.seed = 7}),
      weighted(folder, "1\n0\n1\n0\n1\n0\n0\n0", 8)};
  for (const auto& order : repeating) EXPECT_FALSE(order->is_permutation()) << order->text();
  for (int64_t i = 0; i < dataset.size(); ++i) dataset.lengths.push_back(i * 41 % 53);
  EXPECT_TRUE(LengthBucketedConfig().order(dataset, {.seed = 7})->is_permutation());
  EXPECT_TRUE(
      cost_balanced_order(shuffled_order(dataset, 7, window), dataset, 8, 2)->is_permutation());
  EXPECT_FALSE(cost_balanced_order(repeating[0], dataset, 8, 2)->is_permutation());
}

TEST(SamplerTest, SomeOrdersNeedNoDataset) {
  const Numbers dataset(103);
  for (const auto& order : {sequential_order(), shuffled_order(dataset, 7, {})}) {
    const auto same = order_without_data(order->text(), 103, 7);
    ASSERT_NE(same, nullptr);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(epoch_of(*same, epoch, 103), epoch_of(*order, epoch, 103));
    }
  }
  for (const char* text : {"class_balanced", "3 times each, shuffled", "", "shuffled in windows"}) {
    EXPECT_EQ(order_without_data(text, 103, 7), nullptr) << text;
  }
}

TEST(SamplerTest, WeightsOfAnySizeAreDrawn) {
  for (const char* text : {"0\n0\n5e-324", "0\n0\n1.7e308", "1.7e308\n1.7e308\n1.7e308"}) {
    const testing::TemporaryFolder folder;
    const auto order = weighted(folder, text, 3);
    std::set<int64_t> drawn;
    for (int64_t i = 0; i < 300; ++i) drawn.insert(order->at(i, 0).sample);
    EXPECT_EQ(drawn, text[0] == '0' ? std::set<int64_t>{2} : (std::set<int64_t>{0, 1, 2}));
  }
}

TEST(SamplerTest, SaysWhatIsWrongWithWeights) {
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
  EXPECT_THAT(parse_weights("0\n 2.5\r\n1e-3\n\n", 3, "w.txt"), ElementsAre(0, 2.5, 1e-3));
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

TEST(SamplerTest, BatchesByLengthHoldSimilarSamplesAndEachComesOnce) {
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

TEST(SamplerTest, BatchesByLengthComeInRandomOrder) {
  Numbers dataset(400);
  for (int64_t i = 0; i < 400; ++i) dataset.lengths.push_back(i);
  const auto order = LengthBucketedConfig().order(dataset, {.seed = 6, .global_batch = 4});
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < 64; ++i) starts.push_back(*dataset.length(order->at(0, 4 * i).sample));
  EXPECT_FALSE(std::ranges::is_sorted(starts));
}

TEST(SamplerTest, BatchesByLengthNeedLengths) {
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
