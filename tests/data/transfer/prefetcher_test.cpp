// The training loop's batches are the loader's, on the device, in order, to the end.
#include "framework/data/transfer/prefetcher.h"

#include <gtest/gtest.h>

#include "framework/data/config.h"
#include "framework/data/sources/synthetic.h"

namespace brim::data {
namespace {

TEST(DevicePrefetcherTest, GivesWhatTheLoaderGivesWithAndWithoutPrefetching) {
  SyntheticConfig config;
  config.samples = 10;
  const auto dataset = config.open_train({});
  const LoaderOptions loading = {
      .global_batch = 4, .micro_batch = 3, .augment = true, .epochs = 2, .pairs = true};
  const ImageInputs input = {.shape = dataset->images()->shape(),
                             .normalizer = make_normalizer(DataConfig{}.normalization(3), at::kCPU),
                             .channels_last = true,
                             .mix = {.mixup = 0.4}};
  for (const bool prefetches : {false, true}) {
    Timeline timeline;
    DevicePrefetcher inputs(*dataset, loading, input, timeline);
    Loader loader(*dataset, loading);
    while (const Batch* batch = loader.next()) {
      const auto* got = inputs.next();
      ASSERT_NE(got, nullptr);
      const auto changes = draw_changes(input.mix, loading.seed, batch->epoch,
                                        batch->first_position, batch->count, input.shape);
      const DeviceBatch expected =
          to_device(*batch, input.shape, input.normalizer, true, at::kFloat, changes);
      if (prefetches) inputs.prefetch();
      EXPECT_EQ(got->first_position, batch->first_position);
      EXPECT_EQ(got->ends_step, batch->ends_step);
      EXPECT_TRUE(got->tensors.inputs.equal(expected.inputs));
      EXPECT_TRUE(got->tensors.labels.equal(expected.labels));
      EXPECT_TRUE(got->tensors.label_shares.equal(expected.label_shares));
    }
    EXPECT_EQ(inputs.next(), nullptr);
  }
}

TEST(DevicePrefetcherTest, TimeGoesToItsPhases) {
  SyntheticConfig config;
  const auto dataset = config.open_train({});
  const ImageInputs input = {
      .shape = dataset->images()->shape(),
      .normalizer = make_normalizer(DataConfig{}.normalization(3), at::kCPU)};
  Timeline timeline;
  timeline.enter(Phase::kForward);
  DevicePrefetcher inputs(*dataset, {.global_batch = 64, .micro_batch = 64}, input, timeline);
  ASSERT_NE(inputs.next(), nullptr);
  const auto seconds = timeline.take();
  EXPECT_GT(seconds[static_cast<size_t>(Phase::kDataWait)], 0);
  EXPECT_GT(seconds[static_cast<size_t>(Phase::kCopy)], 0);
  EXPECT_GT(seconds[static_cast<size_t>(Phase::kTransform)], 0);
}

/// Rows of which sample i counts i + 1.
class WeightedRows final : public TokenSamples {
 public:
  int64_t size() const override { return 7; }
  TokenShape shape() const override { return {.length = 2, .vocabulary = 9}; }
  std::string name(int64_t) const override { return "row"; }
  int64_t weight(int64_t index) const override { return index + 1; }
  bool is_weighted() const override { return true; }
  int64_t read(int64_t, RandomStream*, std::span<uint8_t> bytes) const override {
    std::ranges::fill(bytes, uint8_t{0});
    return 0;
  }
};

TEST(DevicePrefetcherTest, AStepsWeightsAreThoseOfAllItsSamples) {
  const WeightedRows rows;
  Timeline timeline;
  const TokenInputs input{rows.shape(), at::kCPU};
  // Rank 0 of 2: steps of 4 and 3 samples, micro-batches of one.
  DevicePrefetcher inputs(rows, {.global_batch = 4, .micro_batch = 1, .world = 2, .epochs = 1},
                          input, timeline);
  std::vector<std::pair<int64_t, int64_t>> weights;
  while (const auto* batch = inputs.next()) weights.emplace_back(batch->weight, batch->step_weight);
  EXPECT_EQ(weights,
            (std::vector<std::pair<int64_t, int64_t>>{{1, 10}, {2, 10}, {5, 18}, {6, 18}}));
}

}  // namespace
}  // namespace brim::data
