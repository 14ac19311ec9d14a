// When products of bfloat16 are taken in float32, and what they multiply by then.
#include "framework/nn/fused/upcast.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>

#include "framework/nn/measured_forms.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

TEST(Upcast, AFactorIsTheWeightItself) {
  const Bf16Products are_missing(false);
  const at::Tensor weight = at::randn({3, 5});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(factor(weight, at::zeros({1}, type)).is_same(weight));
  }
}

TEST(Upcast, AFactorOfBfloat16IsFloat32) {
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

TEST(Upcast, IsWhatWasMeasuredWhereThereAreInstructions) {
  const Bf16Products before(multiplies_bf16_faster());
  const bool has_instructions = loops::has_bf16_products();
  const std::string name = "bf16 products in float32 BFloat16[512,512] Float[512,512] threads " +
                           std::to_string(at::get_num_threads());
  for (const bool is_faster : {false, true}) {
    remember_forms({{name, is_faster ? FormTimes{2, 1} : FormTimes{1, 2}}});
    choose_products(Fused::kMeasured);
    EXPECT_EQ(multiplies_bf16_faster(), has_instructions && is_faster);
    choose_products(Fused::kUsual);
    EXPECT_EQ(multiplies_bf16_faster(), has_instructions);
  }
}

}  // namespace
}  // namespace brim::nn
