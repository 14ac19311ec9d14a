// Which positions make which batch: every property that training relies on, over many sizes.
#include "framework/data/order/plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <vector>

#include "framework/base/error.h"
#include "tests/support/error_of.h"

namespace brim::data {
namespace {

using ::testing::HasSubstr;

struct PlanCase {
  int64_t size, global, micro, world;
  bool drop_last;
};

std::vector<PlanCase> cases() {
  std::vector<PlanCase> result;
  for (const int64_t size : {1, 2, 7, 64, 101}) {
    for (const int64_t global : {1, 3, 8, 64, 200}) {
      for (const int64_t micro : {1, 2, 5, 64}) {
        for (const int64_t world : {1, 2, 3, 8}) {
          for (const bool drop_last : {false, true}) {
            if (drop_last && size < global) continue;
            result.push_back({size, global, micro, world, drop_last});
          }
        }
      }
    }
  }
  return result;
}

LoaderOptions options(const PlanCase& c, int64_t rank) {
  return {.global_batch = c.global,
          .micro_batch = c.micro,
          .drop_last = c.drop_last,
          .rank = rank,
          .world = c.world,
          .epochs = 2};
}

std::vector<BatchPlan> all_batches(const PlanCase& c, int64_t rank, int64_t epoch = 0,
                                   int64_t step = 0) {
  Plan plan(c.size, options(c, rank), epoch, step);
  std::vector<BatchPlan> result;
  while (const auto batch = plan.next()) result.push_back(*batch);
  return result;
}

TEST(PlanTest, EveryPositionComesExactlyOnceAnEpochOverAllRanks) {
  for (const PlanCase& c : cases()) {
    std::map<int64_t, std::vector<int64_t>> positions;  // by epoch
    for (int64_t rank = 0; rank < c.world; ++rank) {
      for (const BatchPlan& batch : all_batches(c, rank)) {
        for (int64_t i = 0; i < batch.count; ++i) {
          const int64_t position = batch.first_position + i;
          EXPECT_EQ(position / c.global, batch.step);
          positions[batch.epoch].push_back(position);
        }
      }
    }
    ASSERT_EQ(positions.size(), 2);
    const int64_t expected = c.drop_last ? c.size / c.global * c.global : c.size;
    for (auto& [epoch, list] : positions) {
      std::ranges::sort(list);
      ASSERT_EQ(static_cast<int64_t>(list.size()), expected);
      for (int64_t i = 0; i < expected; ++i) ASSERT_EQ(list[static_cast<size_t>(i)], i);
    }
  }
}

TEST(PlanTest, MicroBatchesOfAStepDifferByAtMostOneAndRanksHaveTheSameNumber) {
  for (const PlanCase& c : cases()) {
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> counts;  // by epoch and step
    for (int64_t rank = 0; rank < c.world; ++rank) {
      std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> own;
      for (const BatchPlan& batch : all_batches(c, rank)) {
        EXPECT_LE(batch.count, c.micro);
        own[{batch.epoch, batch.step}].push_back(batch.count);
      }
      for (const auto& [step, list] : own) {
        const auto [least, most] = std::ranges::minmax(list);
        EXPECT_LE(most - least, 1);
        auto& over_ranks = counts[step];
        if (rank == 0) over_ranks.push_back(static_cast<int64_t>(list.size()));
        EXPECT_EQ(over_ranks.front(), static_cast<int64_t>(list.size()));
        EXPECT_GE(least, c.world == 1 ? 1 : 0);
      }
    }
  }
}

TEST(PlanTest, PairsStayWhole) {
  int odd_ends = 0;
  for (const PlanCase& c : cases()) {
    if (c.global % 2 != 0 || c.micro < 2) continue;
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> counts;  // by epoch and step
    std::map<int64_t, std::vector<int64_t>> positions;                   // by epoch
    const int64_t used = c.drop_last ? c.size / c.global * c.global : c.size;
    for (int64_t rank = 0; rank < c.world; ++rank) {
      LoaderOptions with_pairs = options(c, rank);
      with_pairs.pairs = true;
      Plan plan(c.size, with_pairs, 0, 0);
      int64_t largest = 0;
      while (const auto batch = plan.next()) {
        const int64_t end = batch->first_position + batch->count;
        EXPECT_EQ(batch->first_position % 2, 0);
        EXPECT_TRUE(end % 2 == 0 || end == used) << end << " of " << used;
        EXPECT_LE(batch->count, c.micro);
        odd_ends += batch->count % 2 != 0 ? 1 : 0;
        largest = std::max(largest, batch->count);
        counts[{batch->epoch, batch->step}].push_back(batch->count);
        for (int64_t i = batch->first_position; i < end; ++i) positions[batch->epoch].push_back(i);
      }
      EXPECT_LE(largest, plan.largest_batch());
    }
    for (const auto& [step, list] : counts) {
      const auto [least, most] = std::ranges::minmax(list);
      // Shares of ranks differ by two, and so do parts of a share.
      EXPECT_LE(most - least, c.world == 1 ? 2 : 4);
      EXPECT_EQ(list.size() % static_cast<size_t>(c.world), 0);
    }
    ASSERT_EQ(positions.size(), 2);
    for (auto& [epoch, list] : positions) {
      std::ranges::sort(list);
      ASSERT_EQ(static_cast<int64_t>(list.size()), used);
      for (int64_t i = 0; i < used; ++i) ASSERT_EQ(list[static_cast<size_t>(i)], i);
    }
  }
  EXPECT_GT(odd_ends, 0);
}

TEST(PlanTest, PartsOfPairsDifferByAtMostTwo) {
  for (int64_t count = 0; count < 70; ++count) {
    for (int64_t parts = 1; parts < 12; ++parts) {
      int64_t next = 0, least = count, most = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const PositionRange part = split_pairs(count, parts, i);
        EXPECT_EQ(part.first, next);
        EXPECT_EQ(part.first % 2, 0);
        next += part.count;
        least = std::min(least, part.count);
        most = std::max(most, part.count);
      }
      EXPECT_EQ(next, count);
      EXPECT_LE(most - least, 2);
    }
  }
}

TEST(PlanTest, EndsAreMarkedAndStepSamplesAddUp) {
  const auto batches =
      all_batches({.size = 10, .global = 4, .micro = 3, .world = 1, .drop_last = false}, 0);
  ASSERT_EQ(batches.size(), 10);  // 2 + 2 + 1 micro-batches an epoch
  const auto is = [&](size_t i, int64_t first, int64_t count, int64_t samples, bool step,
                      bool epoch) {
    EXPECT_EQ(batches[i].first_position, first) << i;
    EXPECT_EQ(batches[i].count, count) << i;
    EXPECT_EQ(batches[i].step_samples, samples) << i;
    EXPECT_EQ(batches[i].ends_step, step) << i;
    EXPECT_EQ(batches[i].ends_epoch, epoch) << i;
  };
  is(0, 0, 2, 4, false, false);
  is(1, 2, 2, 4, true, false);
  is(2, 4, 2, 4, false, false);
  is(3, 6, 2, 4, true, false);
  is(4, 8, 2, 2, true, true);
  is(5, 0, 2, 4, false, false);
  EXPECT_EQ(batches[5].epoch, 1);
}

TEST(PlanTest, StartingInTheMiddleIsSkippingToIt) {
  for (const PlanCase& c : cases()) {
    const auto whole = all_batches(c, c.world - 1);
    const int64_t steps = steps_per_epoch(c.size, c.global, c.drop_last);
    for (int64_t step = 0; step <= steps; ++step) {
      Plan plan(c.size, options(c, c.world - 1), 0, step);
      auto rest = std::ranges::find_if(
          whole, [&](const BatchPlan& b) { return b.epoch * steps + b.step == step; });
      for (; rest != whole.end(); ++rest) {
        const auto batch = plan.next();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->epoch, rest->epoch);
        EXPECT_EQ(batch->first_position, rest->first_position);
        EXPECT_EQ(batch->count, rest->count);
        EXPECT_EQ(batch->ends_step, rest->ends_step);
      }
      EXPECT_FALSE(plan.next());
    }
  }
}

TEST(PlanTest, NamesAnOptionThatIsOutOfRange) {
  const auto said = [](const LoaderOptions& options) {
    return error_of(Exit::kBug, [&] { Plan(10, options, 0, 0); });
  };
  EXPECT_EQ(said({.rank = 2, .world = 2}), "the loader's option rank is 2: expected 0 to 1");
  EXPECT_THAT(said({.prefetch = int64_t{1} << 60}),
              ::testing::HasSubstr("option prefetch is 1152921504606846976"));
  EXPECT_THAT(said({.order = nullptr}), ::testing::HasSubstr("option order is null"));
}

TEST(PlanTest, SaysWhatIsWrongWhereNothingIsLeftToRead) {
  const auto message = [](int64_t size, const LoaderOptions& options) -> std::string {
    try {
      Plan(size, options, 0, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(0, {}), "the dataset holds no samples");
  EXPECT_THAT(message(10, {.global_batch = 64, .drop_last = true}),
              HasSubstr("global batch of 64 is larger than the dataset's 10 samples"));
  EXPECT_EQ(message(10, {.global_batch = 64}), "no error");
  EXPECT_THAT(message(10, {.global_batch = 5, .micro_batch = 4, .pairs = true}),
              HasSubstr("an even batch.global"));
  EXPECT_THAT(message(10, {.global_batch = 4, .micro_batch = 1, .pairs = true}),
              HasSubstr("batch.micro of at least 2"));
}

}  // namespace
}  // namespace brim::data
