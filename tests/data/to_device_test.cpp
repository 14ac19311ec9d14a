// A batch as tensors: layout, values, ownership.
#include "framework/data/to_device.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "framework/data/normalize.h"
#include "framework/data/synthetic.h"

namespace brim::data {
namespace {

TEST(ToDeviceTest, ImagesAreNormalisedInEitherLayout) {
  SyntheticConfig config;
  config.height = 37;  // large enough to be split over threads
  config.width = 45;
  config.samples = 40;
  const auto dataset = as_images(config.open_train({}));
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
    const DeviceBatch result = to_device(batch, dataset->shape(), normalizer, channels_last);
    EXPECT_EQ(result.images.scalar_type(), at::kFloat);
    EXPECT_TRUE(result.images.is_contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                          : at::MemoryFormat::Contiguous));
    EXPECT_TRUE(at::allclose(result.images.to(at::kDouble), expected, 1e-6, 1e-6));
  }
  const auto in_double = to_device(batch, dataset->shape(), normalizer, true, at::kDouble);
  EXPECT_EQ(in_double.images.scalar_type(), at::kDouble);
  EXPECT_TRUE(in_double.images.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ToDeviceTest, TensorsOutliveTheBatch) {
  SyntheticConfig config;
  const auto dataset = as_images(config.open_train({}));
  Loader loader(*dataset, {.global_batch = 4, .micro_batch = 4});
  const Normalizer normalizer = make_normalizer(DataConfig{}.normalization(3), at::kCPU);
  const DeviceBatch first = to_device(*loader.next(), dataset->shape(), normalizer, true);
  const auto images = first.images.clone();
  const auto labels = first.labels.clone();
  loader.next();
  EXPECT_TRUE(first.images.equal(images));
  EXPECT_TRUE(first.labels.equal(labels));
  EXPECT_TRUE(labels.equal(at::tensor({0, 1, 2, 3}, at::kLong)));
}

TEST(ToDeviceTest, AnEmptyBatchAndOneChannelWork) {
  SyntheticConfig config;
  config.channels = 1;
  const auto dataset = as_images(config.open_train({}));
  const Normalizer normalizer = make_normalizer(DataConfig{}.normalization(1), at::kCPU);
  const Batch nothing;
  EXPECT_EQ(to_device(nothing, dataset->shape(), normalizer, true).images.sizes(),
            (at::IntArrayRef{0, 1, 32, 32}));
  std::vector<uint8_t> pixels(32 * 32, 255);
  const std::vector<int64_t> labels = {3};
  Batch white;
  white.count = 1;
  white.pixels = pixels;
  white.labels = labels;
  const auto images = to_device(white, dataset->shape(), normalizer, false).images;
  EXPECT_NEAR(images.min().item<float>(), 1, 1e-6);
  EXPECT_NEAR(images.max().item<float>(), 1, 1e-6);
}

TEST(NormalizeImagesTest, RefusesWhatItDoesNotUnderstand) {
  const auto ok = at::tensor({1.F});
  EXPECT_THROW(normalize_images(at::tensor({1.F}), ok, ok, false), c10::Error);
  const auto pixels = at::from_blob(nullptr, {0, 2, 2, 3}, at::kByte);
  EXPECT_THROW(normalize_images(pixels, ok, ok, false), c10::Error);
}

}  // namespace
}  // namespace brim::data
