// What products of bfloat16 multiply by, where the CPU has no instructions for them.
#include "framework/nn/fused/upcast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

TEST(Widening, AFactorIsTheWeightItself) {
  const Bf16Products are_missing(false);
  const at::Tensor weight = at::randn({3, 5});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(factor(weight, at::zeros({1}, type)).is_same(weight));
  }
}

TEST(Widening, AFactorOfBfloat16IsFloat32) {
  const at::Tensor x = at::zeros({1}, at::kBFloat16);
  const at::Tensor weight = at::randn({3, 5}).to(at::kBFloat16);
  {
    const Bf16Products are_missing(false);
    EXPECT_EQ(factor(weight, x).scalar_type(), at::kFloat);
    EXPECT_TRUE(factor(weight, x).equal(weight.to(at::kFloat)));
  }
  const Bf16Products are_there(true);
  EXPECT_TRUE(factor(weight, x).is_same(weight));
}

}  // namespace
}  // namespace brim::nn
