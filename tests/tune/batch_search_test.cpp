// The search against scripted memories: each model says what a batch takes, and the search must end
// at the largest size that leaves the margin, in few probes, without asking for a size twice.
#include "framework/tune/batch_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/support/error_of.h"

namespace brim::tune {
namespace {

constexpr int64_t kMiB = 1 << 20;
using Model = std::function<double(int64_t size)>;  // MiB

/// A device of `cap` MiB, on which a batch takes what the model says.
class Device {
 public:
  Device(double cap_mib, Model model) : cap_mib_(cap_mib), model_(std::move(model)) {}

  SearchResult search(const SearchOptions& options) {
    return search_batch(options, [this](int64_t size) { return run(size); });
  }
  Probe run(int64_t size) {
    EXPECT_TRUE(asked_.insert(size).second) << size << " was asked for twice";
    const double peak = model_(size);
    return {.fits = peak <= cap_mib_,
            .peak_bytes = peak <= cap_mib_ ? static_cast<int64_t>(peak * kMiB) : 0,
            .cap_bytes = static_cast<int64_t>(cap_mib_ * kMiB),
            .step_s = 0.010 + 0.001 * static_cast<double>(size)};
  }
  /// Filled as much as it takes, or one step more would be too much.
  bool is_filled(int64_t size) const {
    return model_(size) >= 0.94 * cap_mib_ || !is_safe(size + (size >= 8 ? 8 : 1));
  }
  bool is_safe(int64_t size) const { return model_(size) <= 0.96 * cap_mib_; }

 private:
  double cap_mib_;
  Model model_;
  std::set<int64_t> asked_;
};

Model linear(double base, double per_sample) {
  return [=](int64_t size) { return base + per_sample * static_cast<double>(size); };
}

constexpr int64_t kPlenty = 1'000'000;

TEST(SearchBatch, LinearMemoryTakesThreeProbesAndFillsTheDevice) {
  for (const double cap : {700.0, 1024.0, 2048.0, 4096.0, 8192.0}) {
    for (const double per_sample : {0.7, 3.3, 12.5, 41.0}) {
      Device device(cap, linear(300, per_sample));
      const SearchResult found = device.search({.largest = kPlenty});
      EXPECT_TRUE(device.is_safe(found.size)) << cap << " " << per_sample;
      EXPECT_TRUE(device.is_filled(found.size)) << cap << " " << per_sample;
      EXPECT_LE(found.probes.size(), 5U) << cap << " " << per_sample;
    }
  }
}

TEST(SearchBatch, TheSizeWasRunAndFits) {
  Device device(1000, linear(100, 7));
  const SearchResult found = device.search({.largest = kPlenty});
  const auto probe = probe_of(found, found.size);
  ASSERT_TRUE(probe);
  EXPECT_TRUE(probe->fits);
  ASSERT_TRUE(probe->predicted_bytes);
  EXPECT_NEAR(static_cast<double>(*probe->predicted_bytes), static_cast<double>(probe->peak_bytes),
              0.01 * static_cast<double>(probe->peak_bytes));
}

TEST(SearchBatch, RefusesSizesOfNoUnit) {
  Device device(1000, linear(100, 7));
  EXPECT_EQ(error_of(Exit::kBug, [&] { device.search({.largest = 5, .unit = 0}); }),
            "the batch search's unit is 0: expected at least 1");
  EXPECT_EQ(error_of(Exit::kBug, [&] { device.search({.largest = 0}); }),
            "the batch search's largest is 0: expected at least 1");
}

TEST(SearchBatch, NoMoreThanTheShareOfTheGlobalBatch) {
  for (const int64_t largest : {1, 5, 8, 13, 61, 1000}) {
    Device device(100'000, linear(10, 1));
    EXPECT_EQ(device.search({.largest = largest}).size, largest);
  }
}

TEST(SearchBatch, SmallSizesAreFoundOneByOne) {
  for (int64_t fits = 1; fits <= 8; ++fits) {
    Device device(1000, linear(0, 959.0 / static_cast<double>(fits)));
    EXPECT_EQ(device.search({.largest = kPlenty}).size, fits);
  }
}

TEST(SearchBatch, NothingFits) {
  Device device(1000, linear(1001, 1));
  const SearchResult found = device.search({.largest = kPlenty});
  EXPECT_EQ(found.size, 0);
  EXPECT_EQ(found.probes.size(), 4U);  // 8, 4, 2, 1
}

TEST(SearchBatch, WhatFitsBelowAShareThatDoesNotIsFound) {
  Device device(1000, linear(100, 48));
  EXPECT_EQ(device.search({.largest = 20}).size, 16);
}

TEST(SearchBatch, PairsStayWhole) {
  Device device(1000, linear(0, 150));
  const SearchResult found = device.search({.largest = 100, .unit = 2});
  EXPECT_EQ(found.size, 6);
  for (const Probe& probe : found.probes) EXPECT_EQ(probe.size % 2, 0);
}

TEST(SearchBatch, AConstantPartHidesTheSlopeOfSmallBatches) {
  // The optimizer's step is the peak until the activations outgrow it.
  Device device(8192, [](int64_t size) { return std::max(600.0, 200 + 0.5 * double(size)); });
  const SearchResult found = device.search({.largest = kPlenty});
  EXPECT_TRUE(device.is_safe(found.size));
  EXPECT_TRUE(device.is_filled(found.size));
  EXPECT_LE(found.probes.size(), 7U);
}

TEST(SearchBatch, StepsOfMemory) {
  Device device(4096, [](int64_t size) { return 300 + 64 * std::ceil(double(size) / 24); });
  const SearchResult found = device.search({.largest = kPlenty});
  EXPECT_TRUE(device.is_safe(found.size));
  EXPECT_TRUE(device.is_filled(found.size));
}

TEST(SearchBatch, ANoisyMemoryNeverGivesASizeThatDidNotFit) {
  for (int seed = 0; seed < 200; ++seed) {
    Device device(4096, [seed](int64_t size) {
      const double noise = std::fmod(double(size) * 12.9898 + seed * 78.233, 1.0);
      return (300 + 9 * double(size)) * (1 + 0.02 * noise);
    });
    const SearchResult found = device.search({.largest = kPlenty});
    EXPECT_TRUE(device.is_safe(found.size)) << seed;
    EXPECT_GE(found.size, 344) << seed;
    EXPECT_LE(found.probes.size(), 8U) << seed;
  }
}

TEST(SearchBatch, AWorkspaceThatJumpsAndGoesAgain) {
  // Some sizes take another algorithm, with a workspace of its own.
  Device device(4096, [](int64_t size) {
    return 300 + 9 * double(size) + (size % 64 == 0 ? 700 : 0) + (size > 256 ? 150 : 0);
  });
  const SearchResult found = device.search({.largest = kPlenty});
  EXPECT_TRUE(device.is_safe(found.size));
  EXPECT_GE(found.size, 312);
  EXPECT_LE(found.probes.size(), 10U);
}

TEST(SearchBatch, EndsWhateverProbesSay) {
  int count = 0;
  const SearchResult found = search_batch({.largest = kPlenty}, [&](int64_t size) {
    ++count;
    return Probe{.fits = count % 2 == 1, .peak_bytes = size % 7, .cap_bytes = 1000, .step_s = 0};
  });
  EXPECT_LE(found.probes.size(), 16U);
}

TEST(VerifyBatch, OneProbeConfirmsASizeOrRefusesIt) {
  const auto verified = [](double peak_mib, int64_t size, bool is_largest = true) {
    Device device(1000, linear(peak_mib, 0));
    return verify_batch({.largest = 64, .unit = 2}, size, is_largest, [&](int64_t asked) {
      EXPECT_EQ(asked, size);
      return device.run(asked);
    });
  };
  EXPECT_EQ(verified(950, 64).size, 64);
  EXPECT_EQ(verified(950, 64).probes.size(), 1U);
  EXPECT_EQ(verified(970, 64).size, 0) << "the margin is gone";
  EXPECT_EQ(verified(1001, 64).size, 0);
  EXPECT_EQ(verified(650, 32).size, 32);
  EXPECT_EQ(verified(560, 32).size, 0) << "48 would fit";
  EXPECT_EQ(verified(560, 32, /*is_largest=*/false).size, 32);
  EXPECT_EQ(verified(560, 64).size, 64) << "no more is asked for";
  EXPECT_TRUE(verified(10, 66).probes.empty()) << "over the largest";
  EXPECT_TRUE(verified(10, 7).probes.empty()) << "no multiple of the unit";
}

TEST(SmallestFastSize, IsWithinOnePercentOfTheBest) {
  Device device(8192, linear(300, 4));
  const SearchOptions options{.largest = kPlenty};
  SearchResult found = device.search(options);
  // A step takes 10 ms and 1 ms a sample: 990 samples/s and more from size 990 on.
  const int64_t size =
      smallest_fast_size(found, options, [&](int64_t asked) { return device.run(asked); });
  EXPECT_EQ(size, 1024);
  EXPECT_GT(found.size, 1800);
}

TEST(SmallestFastSize, OneProbeIsEnoughWhereTheShareIsSmall) {
  Device device(8192, linear(300, 4));
  const SearchOptions options{.largest = 4};
  SearchResult found = device.search(options);
  const RunProbe run = [&](int64_t asked) { return device.run(asked); };
  EXPECT_EQ(smallest_fast_size(found, options, run), 4);
}

}  // namespace
}  // namespace brim::tune
