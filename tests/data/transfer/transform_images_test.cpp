// The pass over a batch agrees with the same steps taken one after the other by LibTorch.
#include "framework/data/transfer/transform_images.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "framework/data/augment/mix.h"

namespace brim::data {
namespace {

using at::indexing::Slice;

at::Tensor as_tensor(const std::vector<ImageChange>& changes) {
  at::Tensor rows = at::empty({static_cast<int64_t>(changes.size()), kChangeInts}, at::kInt);
  std::memcpy(rows.data_ptr(), changes.data(), changes.size() * sizeof(ImageChange));
  return rows;
}

at::Tensor inside(const at::Tensor& image, const PixelRange& box) {
  return image.index({Slice(), Slice(box.top, box.bottom), Slice(box.left, box.right)});
}

/// float32 [N, C, H, W]: flip, normalise and erase each image, then mix pairs as torchvision's
/// MixUp and CutMix do.
at::Tensor step_by_step(const at::Tensor& pixels, const at::Tensor& mean, const at::Tensor& std,
                        const std::vector<ImageChange>& changes) {
  std::vector<at::Tensor> own;
  for (size_t i = 0; i < changes.size(); ++i) {
    at::Tensor image = pixels[static_cast<int64_t>(i)].permute({2, 0, 1});
    if (changes[i].flip != 0) image = image.flip({2});
    image = (image.to(at::kFloat) / 255 - mean.view({-1, 1, 1})) / std.view({-1, 1, 1});
    inside(image, changes[i].erased).fill_(0);
    own.push_back(image);
  }
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < changes.size(); ++i) {
    mixed.push_back(own[i].clone());
    if (changes[i].partner < 0) continue;
    const at::Tensor other = inside(own[static_cast<size_t>(changes[i].partner)], changes[i].mixed);
    const at::Tensor part = inside(own[i], changes[i].mixed);
    const double share = changes[i].own;
    inside(mixed[i], changes[i].mixed).copy_(other.mul(1 - share).add_(part.mul(share)));
  }
  return at::stack(mixed);
}

struct Sizes {
  int64_t count, height, width, channels;
};

std::vector<ImageChange> changes_for(const Sizes& sizes) {
  auto changes = draw_changes({.mixup = 0.6, .cutmix = 1, .erase = 0.7}, 11, 2, 4, sizes.count,
                              {sizes.height, sizes.width, sizes.channels});
  for (size_t i = 0; i < changes.size(); ++i) changes[i].flip = i % 3 == 0 ? 1 : 0;
  return changes;
}

TEST(AugmentImagesTest, EqualsTheSameStepsOneByOne) {
  at::manual_seed(1);
  for (const Sizes& s : {Sizes{9, 17, 23, 3},
                         {64, 32, 32, 3},
                         {6, 1, 1, 3},
                         {12, 28, 28, 1},
                         {4, 5, 7, 4},
                         {2, 3, 3, 2},
                         {1, 8, 8, 3}}) {
    const at::Tensor pixels = at::randint(256, {s.count, s.height, s.width, s.channels}, at::kByte);
    const at::Tensor mean = at::rand({s.channels}), std = at::rand({s.channels}) + 0.2;
    const at::Tensor scale = 1 / (255 * std), bias = -mean / std;
    const auto changes = changes_for(s);
    const at::Tensor expected = step_by_step(pixels, mean, std, changes);
    for (const bool channels_last : {false, true}) {
      const at::Tensor found =
          transform_images(pixels, scale, bias, as_tensor(changes), channels_last);
      EXPECT_TRUE(found.is_contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                    : at::MemoryFormat::Contiguous));
      EXPECT_LE((found - expected).abs().max().item<float>(), 1e-6) << pixels.sizes();
      EXPECT_FALSE(
          found.equal(transform_images(pixels, scale, bias, std::nullopt, channels_last)) &&
          s.height > 1 && s.count > 1);
      for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
        const at::Tensor rounded =
            transform_images(pixels, scale, bias, as_tensor(changes), channels_last, dtype);
        EXPECT_TRUE(rounded.equal(found.to(dtype))) << dtype;
        EXPECT_EQ(rounded.strides(), found.strides());
      }
    }
  }
}

TEST(AugmentImagesTest, CutmixAndErasingCopyExactly) {
  const at::Tensor pixels = at::randint(256, {2, 6, 6, 3}, at::kByte);
  const at::Tensor scale = at::tensor({0.1F, 0.2F, 0.3F}), bias = at::tensor({1.F, 2.F, 3.F});
  const at::Tensor plain = transform_images(pixels, scale, bias, std::nullopt, false);
  std::vector<ImageChange> changes(2);
  changes[0] = {.flip = 0, .erased = {0, 0, 2, 2}, .mixed = {1, 1, 5, 6}, .partner = 1, .own = 0};
  const at::Tensor found = transform_images(pixels, scale, bias, as_tensor(changes), false);
  EXPECT_TRUE(found[1].equal(plain[1]));
  EXPECT_TRUE(inside(found[0], {1, 1, 5, 6}).equal(inside(plain[1], {1, 1, 5, 6})));
  EXPECT_TRUE(inside(found[0], {5, 0, 6, 6}).equal(inside(plain[0], {5, 0, 6, 6})));
  EXPECT_EQ(inside(found[0], {0, 0, 1, 2}).abs().max().item<float>(), 0);
}

TEST(AugmentImagesTest, WhatLiesOutsideIsLeftAlone) {
  const at::Tensor pixels = at::randint(256, {2, 4, 4, 3}, at::kByte);
  const at::Tensor one = at::ones({3});
  const at::Tensor plain = transform_images(pixels, one, one, std::nullopt, true);
  std::vector<ImageChange> changes(2);
  changes[0] = {.flip = 0, .erased = {-5, 9, 3, 4}, .mixed = {0, 0, 4, 4}, .partner = 2, .own = 0};
  changes[1] = {.flip = 0, .erased = {4, 0, 9, 4}, .mixed = {0, -3, 4, 0}, .partner = 0, .own = 0};
  EXPECT_TRUE(transform_images(pixels, one, one, as_tensor(changes), true).equal(plain));
}

TEST(AugmentImagesTest, RefusesWhatItDoesNotUnderstand) {
  const auto ok = at::tensor({1.F});
  EXPECT_THROW(transform_images(at::tensor({1.F}), ok, ok, std::nullopt, false), c10::Error);
  const auto pixels = at::zeros({2, 2, 2, 3}, at::kByte);
  EXPECT_THROW(transform_images(pixels, ok, ok, std::nullopt, false), c10::Error);
  const auto three = at::ones({3});
  EXPECT_THROW(transform_images(pixels, three, three, at::zeros({1, kChangeInts}, at::kInt), false),
               c10::Error);
  EXPECT_THROW(transform_images(pixels, three, three, at::zeros({2, kChangeInts}), false),
               c10::Error);
  EXPECT_THROW(transform_images(pixels, three, three, std::nullopt, false, at::kDouble),
               c10::Error);
}

}  // namespace
}  // namespace brim::data
