// A batch as tensors: layout, values, ownership.
#include "framework/data/transfer/to_device.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "framework/data/augment/mix.h"
#include "framework/data/sources/synthetic.h"

namespace brim::data {
namespace {

TEST(ToDeviceTest, ImagesAreNormalisedInEitherLayout) {
  SyntheticConfig config;
  config.height = 37;  // large enough to be split over threads
  config.width = 45;
  config.samples = 40;
  const auto dataset = config.open_train({});
  Loader loader(*dataset, {.global_batch = 40, .micro_batch = 40});
  const Batch& batch = *loader.next();
  const Normalization normalization = {{0.1, 0.2, 0.3}, {0.5, 0.25, 0.125}};
  const Normalizer normalizer = make_normalizer(normalization, at::kCPU);

  const auto pixels =
      at::from_blob(const_cast<uint8_t*>(batch.pixels.data()), {40, 37, 45, 3}, at::kByte);
  const auto expected = ((pixels.to(at::kDouble) / 255 - at::tensor(normalization.mean)) /
                         at::tensor(normalization.std))
                            .permute({0, 3, 1, 2});
  for (const bool channels_last : {false, true}) {
    const DeviceBatch result =
        to_device(batch, dataset->images()->shape(), normalizer, channels_last);
    EXPECT_EQ(result.inputs.scalar_type(), at::kFloat);
    EXPECT_TRUE(result.inputs.is_contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                          : at::MemoryFormat::Contiguous));
    EXPECT_TRUE(at::allclose(result.inputs.to(at::kDouble), expected, 1e-6, 1e-6));
  }
  const auto in_half = to_device(batch, dataset->images()->shape(), normalizer, true, at::kHalf);
  EXPECT_EQ(in_half.inputs.scalar_type(), at::kHalf);
  EXPECT_TRUE(in_half.inputs.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ToDeviceTest, TensorsOutliveTheBatch) {
  SyntheticConfig config;
  const auto dataset = config.open_train({});
  Loader loader(*dataset, {.global_batch = 4, .micro_batch = 4});
  const Normalizer normalizer = make_normalizer(DataConfig{}.normalization(3), at::kCPU);
  const DeviceBatch first = to_device(*loader.next(), dataset->images()->shape(), normalizer, true);
  const auto images = first.inputs.clone();
  const auto labels = first.labels.clone();
  loader.next();
  EXPECT_TRUE(first.inputs.equal(images));
  EXPECT_TRUE(first.labels.equal(labels));
  EXPECT_TRUE(labels.equal(at::tensor({0, 1, 2, 3}, at::kLong)));
}

TEST(ToDeviceTest, AnEmptyBatchAndOneChannelWork) {
  SyntheticConfig config;
  config.channels = 1;
  const auto dataset = config.open_train({});
  const Normalizer normalizer = make_normalizer(DataConfig{}.normalization(1), at::kCPU);
  const Batch nothing;
  EXPECT_EQ(to_device(nothing, dataset->images()->shape(), normalizer, true).inputs.sizes(),
            (at::IntArrayRef{0, 1, 32, 32}));
  std::vector<uint8_t> pixels(32 * 32, 255);
  const std::vector<int64_t> labels = {3};
  Batch white;
  white.count = 1;
  white.pixels = pixels;
  white.labels = labels;
  const auto images = to_device(white, dataset->images()->shape(), normalizer, false).inputs;
  EXPECT_NEAR(images.min().item<float>(), 1, 1e-6);
  EXPECT_NEAR(images.max().item<float>(), 1, 1e-6);
}

TEST(ToDeviceTest, MixedImagesShareTheirLabels) {
  SyntheticConfig config;
  const auto dataset = config.open_train({});
  Loader loader(*dataset, {.global_batch = 4, .micro_batch = 4});
  const Normalizer normalizer = make_normalizer(DataConfig{}.normalization(3), at::kCPU);
  const Batch& batch = *loader.next();
  const ImageShape shape = dataset->images()->shape();
  const auto changes = draw_changes({.mixup = 0.5}, 1, 0, 0, 3, shape);
  Batch three = batch;
  three.count = 3;
  three.pixels = batch.pixels.first(static_cast<size_t>(3 * shape.bytes()));
  three.labels = batch.labels.first(3);
  const DeviceBatch mixed = to_device(three, shape, normalizer, true, at::kFloat, changes);
  EXPECT_TRUE(mixed.labels.equal(at::tensor({0, 1, 2}, at::kLong)));
  EXPECT_TRUE(mixed.partner_labels.equal(at::tensor({1, 0, 2}, at::kLong)));
  EXPECT_TRUE(mixed.label_shares.equal(
      at::tensor({label_share(changes[0], shape), label_share(changes[1], shape), 1.F})));
  EXPECT_NE(changes[0].own, 1);
  const auto plain = to_device(three, shape, normalizer, true);
  EXPECT_FALSE(plain.partner_labels.defined());
  EXPECT_FALSE(plain.inputs[0].equal(mixed.inputs[0]));
  EXPECT_TRUE(plain.inputs[2].equal(mixed.inputs[2]));
  // Erasing alone shares no labels.
  const auto erased = draw_changes({.erase = 1}, 1, 0, 0, 3, shape);
  EXPECT_FALSE(
      to_device(three, shape, normalizer, true, at::kFloat, erased).partner_labels.defined());
}

/// Planes of one row as a batch.
struct Row {
  explicit Row(std::vector<int32_t> values, int64_t label = 0)
      : ids(std::move(values)), labels{label} {
    batch.count = 1;
    batch.pixels = {reinterpret_cast<const uint8_t*>(ids.data()), ids.size() * sizeof(int32_t)};
    batch.labels = labels;
  }
  std::vector<int32_t> ids;
  std::vector<int64_t> labels;
  Batch batch;
};

at::Tensor row(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).unsqueeze(0);
}

TEST(TokensToDeviceTest, AModelSeesAllButTheLastAndPredictsAllButTheFirst) {
  const Row tokens({5, 3, 8, 1});
  const DeviceBatch result =
      tokens_to_device(tokens.batch, {.length = 3, .vocabulary = 9}, at::kCPU);
  EXPECT_TRUE(result.inputs.equal(row({5, 3, 8})));
  EXPECT_TRUE(result.labels.equal(row({3, 8, 1})));
  EXPECT_FALSE(result.partner_labels.defined());
}

TEST(TokensToDeviceTest, NothingIsPredictedAcrossDocumentsOrInWhatIsLeft) {
  const Row tokens({5, 3, 8, 1, 0, 0,    // tokens
                    0, 1, 0, 1, 0, 0,    // positions
                    1, 1, 2, 2, 0, 0});  // segments
  const DeviceBatch result = tokens_to_device(
      tokens.batch, {.length = 5, .vocabulary = 9, .has_documents = true}, at::kCPU);
  EXPECT_TRUE(result.inputs[0].equal(
      at::cat({row({5, 3, 8, 1, 0}), row({0, 1, 0, 1, 0}), row({1, 1, 2, 2, 0})})));
  EXPECT_TRUE(result.labels.equal(row({3, kNoLabel, 1, kNoLabel, kNoLabel})));
}

TEST(TokensToDeviceTest, ARowThatCannotBeReadPredictsNothing) {
  const Row tokens({0, 0, 0}, kNoLabel);
  const DeviceBatch result =
      tokens_to_device(tokens.batch, {.length = 2, .vocabulary = 9}, at::kCPU);
  EXPECT_TRUE(result.labels.equal(row({kNoLabel, kNoLabel})));
}

}  // namespace
}  // namespace brim::data
