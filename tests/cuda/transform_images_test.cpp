#include "framework/data/transfer/transform_images.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/cuda/image_changes.h"

namespace brim::cuda {
namespace {

void expect_as_on_cpu(const at::Tensor& pixels, const std::optional<at::Tensor>& changes,
                      bool channels_last, at::ScalarType dtype) {
  const at::Tensor scale = at::rand({pixels.size(3)});
  const at::Tensor bias = at::rand({pixels.size(3)});
  const at::Tensor expected =
      data::transform_images(pixels, scale, bias, changes, channels_last, dtype);
  std::optional<at::Tensor> on_device;
  if (changes) on_device = changes->cuda();
  const at::Tensor found = data::transform_images(pixels.cuda(), scale.cuda(), bias.cuda(),
                                                  on_device, channels_last, dtype);
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_EQ(found.strides(), expected.strides());
  EXPECT_EQ(found.scalar_type(), dtype);
  EXPECT_TRUE(at::equal(found.cpu(), expected)) << "the bits differ";
}

TEST_F(Gpu, AugmentsAsTheCpuDoes) {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 1, 1, 1},   {2, 8, 8, 1},     {3, 7, 5, 1},    {1, 1, 1, 3},
      {5, 7, 9, 3},   {4, 224, 224, 3}, {3, 32, 32, 4},  {2, 3, 5, 4},
      {2, 16, 16, 2}, {2, 5, 5, 5},     {1, 4, 4, 70},   {256, 31, 1, 3},
      {0, 8, 8, 3},   {2, 0, 8, 3},     {97, 64, 66, 3}, {70'000, 2, 4, 3}};
  for (const std::vector<int64_t>& size : sizes) {
    const at::Tensor pixels = at::randint(256, size, at::kByte);
    for (const bool channels_last : {false, true}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(testing::Message()
                     << pixels.sizes() << " channels_last " << channels_last << " " << dtype);
        expect_as_on_cpu(pixels, std::nullopt, channels_last, dtype);
        if (pixels.size(1) > 0) expect_as_on_cpu(pixels, changes_for(pixels), channels_last, dtype);
      }
    }
  }
}

TEST_F(Gpu, AugmentsAViewThatBeginsAtAnyByte) {
  const at::Tensor pixels = at::randint(256, {3, 5, 5, 3}, at::kByte).cuda();
  const at::Tensor scale = at::rand({3}).cuda(), bias = at::rand({3}).cuda();
  const at::Tensor view = pixels.slice(0, 1);  // 75 bytes in
  const at::Tensor found = data::transform_images(view, scale, bias, std::nullopt, true);
  EXPECT_TRUE(
      at::equal(found, data::transform_images(view.clone(), scale, bias, std::nullopt, true)));
}

TEST_F(Gpu, RefusesWhatItCannotAugment) {
  const at::Tensor pixels = at::randint(256, {1, 4, 4, 3}, at::kByte).cuda();
  const at::Tensor three = at::rand({3}), two = at::rand({2}).cuda();
  const at::Tensor on_device = three.cuda();
  EXPECT_THROW(data::transform_images(pixels, two, two, std::nullopt, true), c10::Error);
  EXPECT_THROW(data::transform_images(pixels, on_device, three, std::nullopt, true), c10::Error);
  EXPECT_THROW(
      data::transform_images(pixels.to(at::kFloat), on_device, on_device, std::nullopt, true),
      c10::Error);
  const at::Tensor on_host = at::empty({1, data::kChangeInts}, at::kInt);
  EXPECT_THROW(data::transform_images(pixels, on_device, on_device, on_host, true), c10::Error);
  EXPECT_THROW(
      data::transform_images(pixels, on_device, on_device, std::nullopt, true, at::kDouble),
      c10::Error);
}

}  // namespace
}  // namespace brim::cuda
