#include "framework/data/normalize.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include <vector>

#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

void expect_as_on_cpu(const at::Tensor& pixels, bool channels_last) {
  const at::Tensor scale = at::rand({pixels.size(3)});
  const at::Tensor bias = at::rand({pixels.size(3)});
  const at::Tensor expected = data::normalize_images(pixels, scale, bias, channels_last);
  const at::Tensor found =
      data::normalize_images(pixels.cuda(), scale.cuda(), bias.cuda(), channels_last);
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_EQ(found.strides(), expected.strides());
  EXPECT_TRUE(at::equal(found.cpu(), expected)) << "the bits differ";
}

TEST_F(Gpu, NormalizesAsTheCpuDoes) {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 1, 1, 1},     {2, 8, 8, 1},    {3, 7, 5, 1}, {1, 1, 1, 3},   {5, 7, 9, 3},
      {4, 224, 224, 3}, {3, 32, 32, 4},  {2, 3, 5, 4}, {2, 16, 16, 2}, {2, 5, 5, 5},
      {1, 4, 4, 70},    {256, 31, 1, 3}, {0, 8, 8, 3}, {2, 0, 8, 3},   {97, 64, 66, 3},
  };
  for (const std::vector<int64_t>& size : sizes) {
    const at::Tensor pixels = at::randint(256, size, at::kByte);
    for (const bool channels_last : {false, true}) {
      SCOPED_TRACE(testing::Message() << pixels.sizes() << " channels_last " << channels_last);
      expect_as_on_cpu(pixels, channels_last);
    }
  }
}

TEST_F(Gpu, NormalizesAViewThatBeginsAtAnyByte) {
  const at::Tensor pixels = at::randint(256, {3, 5, 5, 3}, at::kByte).cuda();
  const at::Tensor scale = at::rand({3}).cuda(), bias = at::rand({3}).cuda();
  const at::Tensor view = pixels.slice(0, 1);  // 75 bytes in
  const at::Tensor found = data::normalize_images(view, scale, bias, true);
  EXPECT_TRUE(at::equal(found, data::normalize_images(view.clone(), scale, bias, true)));
}

TEST_F(Gpu, RefusesWhatItCannotNormalize) {
  const at::Tensor pixels = at::randint(256, {1, 4, 4, 3}, at::kByte).cuda();
  const at::Tensor three = at::rand({3}), two = at::rand({2}).cuda();
  EXPECT_THROW(data::normalize_images(pixels, two, two, true), c10::Error);
  EXPECT_THROW(data::normalize_images(pixels, three.cuda(), three, true), c10::Error);
  EXPECT_THROW(data::normalize_images(pixels.to(at::kFloat), three.cuda(), three.cuda(), true),
               c10::Error);
}

}  // namespace
}  // namespace brim::cuda
