#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <vector>

#include "framework/amp/grad_scaler.h"
#include "framework/base/error.h"
#include "tests/support/error_of.h"

namespace brim::amp {
namespace {

constexpr GradScalerConfig kFast = {.growth_interval = 3};

at::Tensor bad_gradient(float value = INFINITY) {
  auto gradient = at::ones({4});
  gradient[2] = value;
  return gradient;
}

void good_step(GradScaler& scaler) {
  scaler.unscale({at::ones({4})});
  scaler.update();
}

void bad_step(GradScaler& scaler, float value = INFINITY) {
  scaler.unscale({bad_gradient(value)});
  scaler.update();
}

int growth_tracker(GradScaler& scaler) {
  return scaler.state().at("grad_scaler.growth_tracker").item<int>();
}

TEST(GradScaler, StartsAtItsInitialScaleAndScalesTheLoss) {
  const GradScaler scaler(at::kCPU, {}, true);
  EXPECT_EQ(scaler.scale(at::full({}, 2.0)).item<double>(), 131072.0);
}

TEST(GradScaler, GrowsAfterTheInterval) {
  GradScaler scaler(at::kCPU, kFast, true);
  good_step(scaler);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 65536.0);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 131072.0);
}

TEST(GradScaler, CountsAnewAfterItGrew) {
  GradScaler scaler(at::kCPU, kFast, true);
  for (int step = 0; step < 5; ++step) good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 131072.0);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 262144.0);
}

TEST(GradScaler, DoesNotGrowPastFloat32) {
  GradScaler scaler(at::kCPU, {.init_scale = 0x1p127, .growth_interval = 1}, true);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 0x1p127);
}

TEST(GradScaler, BacksOffOnInfinity) {
  GradScaler scaler(at::kCPU, kFast, true);
  bad_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 32768.0);
}

TEST(GradScaler, BacksOffOnNan) {
  GradScaler scaler(at::kCPU, kFast, true);
  bad_step(scaler, NAN);
  EXPECT_EQ(scaler.read_scale(), 32768.0);
}

TEST(GradScaler, BackingOffResetsTheCountOfGoodSteps) {
  GradScaler scaler(at::kCPU, kFast, true);
  good_step(scaler);
  good_step(scaler);
  EXPECT_EQ(growth_tracker(scaler), 2);
  bad_step(scaler);
  EXPECT_EQ(growth_tracker(scaler), 0);
  good_step(scaler);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 32768.0);
}

TEST(GradScaler, NeverFallsUnderTheMinimum) {
  GradScaler scaler(at::kCPU, {.init_scale = 10.0, .min_scale = 4.0}, true);
  bad_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 5.0);
  bad_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 4.0);
  bad_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 4.0);
}

TEST(GradScaler, GrowsAgainFromTheMinimum) {
  GradScaler scaler(at::kCPU, {.init_scale = 4.0, .growth_interval = 1, .min_scale = 4.0}, true);
  bad_step(scaler);
  good_step(scaler);
  EXPECT_EQ(scaler.read_scale(), 8.0);
}

TEST(GradScaler, RefusesAnInitialScaleUnderTheMinimum) {
  try {
    const GradScaler scaler(at::kCPU, {.init_scale = 1.0, .min_scale = 2.0}, true);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
  }
}

TEST(GradScaler, RefusesFactorsThatTurnTheScaleTheOtherWay) {
  EXPECT_THROW(GradScaler(at::kCPU, {.init_scale = NAN}, true), Error);
  EXPECT_THROW(GradScaler(at::kCPU, {.growth_factor = -1}, true), Error);
  EXPECT_THROW(GradScaler(at::kCPU, {.backoff_factor = 3}, true), Error);
  EXPECT_THROW(GradScaler(at::kCPU, {.growth_interval = 0}, true), Error);
}

TEST(GradScaler, UnscaleDividesTheGradientsAndLeavesNothingToTheOptimizer) {
  GradScaler scaler(at::kCPU, {.init_scale = 8.0}, true);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    auto gradient = at::full({5}, 16.0, at::TensorOptions().dtype(dtype));
    scaler.unscale({gradient});
    EXPECT_TRUE(gradient.eq(2.0).all().item<bool>()) << dtype;
    EXPECT_FALSE(scaler.grad_scale().has_value());
    EXPECT_EQ(scaler.found_inf()->item<float>(), 0.0F);
    scaler.update();
  }
}

TEST(GradScaler, CheckLeavesTheDivisionToTheOptimizer) {
  GradScaler scaler(at::kCPU, {.init_scale = 8.0}, true);
  auto gradient = at::full({5}, 16.0);
  scaler.check({gradient});
  EXPECT_TRUE(gradient.eq(16.0).all().item<bool>());
  EXPECT_EQ(scaler.grad_scale()->item<float>(), 8.0F);
  EXPECT_EQ(scaler.found_inf()->item<float>(), 0.0F);
}

TEST(GradScaler, OneBadGradientAmongDtypesIsFound) {
  GradScaler scaler(at::kCPU, {}, true);
  scaler.check({at::ones({3}), bad_gradient().to(at::kBFloat16), at::ones({2}).to(at::kDouble)});
  EXPECT_EQ(scaler.found_inf()->item<float>(), 1.0F);
}

TEST(GradScaler, ForgetsTheInfinityOfTheStepBefore) {
  GradScaler scaler(at::kCPU, {}, true);
  bad_step(scaler);
  EXPECT_EQ(scaler.found_inf()->item<float>(), 1.0F) << "the average still needs it";
  scaler.check({at::ones({3})});
  EXPECT_EQ(scaler.found_inf()->item<float>(), 0.0F);
}

TEST(GradScaler, StepsWithoutGradientsCountAsGood) {
  GradScaler scaler(at::kCPU, {.growth_interval = 1}, true);
  scaler.unscale({});
  scaler.update();
  EXPECT_EQ(scaler.read_scale(), 131072.0);
}

TEST(GradScaler, RefusesToInspectTwiceInAStep) {
  GradScaler scaler(at::kCPU, {}, true);
  const at::Tensor gradient = at::ones({3}), other = at::ones({3});
  scaler.unscale({gradient});
  EXPECT_THROW(scaler.unscale({gradient}), Error);
  EXPECT_THROW(scaler.check({other}), Error);
  scaler.unscale({other});
  EXPECT_TRUE(at::equal(gradient, other));
}

TEST(GradScaler, StepsOptimizersEachByItsOwnGradients) {
  GradScaler scaler(at::kCPU, {}, true);
  std::vector<at::Tensor> weights;
  std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(at::zeros({1}).requires_grad_());
    optimizers.push_back(std::make_unique<torch::optim::SGD>(std::vector{weights.back()}, 1.0));
  }
  scaler.scale(weights[0].sum() + weights[1].sum() * INFINITY + weights[2].sum()).backward();
  EXPECT_TRUE(scaler.step(*optimizers[0]));
  EXPECT_FALSE(scaler.step(*optimizers[1]));
  EXPECT_TRUE(scaler.step(*optimizers[2]));
  EXPECT_THROW(scaler.step(*optimizers[2]), Error) << "before update()";
  EXPECT_EQ(weights[0].item<float>(), -1);
  EXPECT_EQ(weights[1].item<float>(), 0);
  EXPECT_EQ(weights[2].item<float>(), -1);
  scaler.update();
  EXPECT_EQ(scaler.read_scale(), 32768.0) << "one gradient was not finite";
  EXPECT_TRUE(scaler.step(*optimizers[2])) << "after update()";
}

TEST(GradScaler, RefusesAStepWithoutAnyGradient) {
  GradScaler scaler(at::kCPU, {}, true);
  const at::Tensor weight = at::zeros({1}).requires_grad_();
  torch::optim::SGD optimizer(std::vector{weight}, 1.0);
  EXPECT_THROW(scaler.step(optimizer), Error);
  scaler.scale(weight.sum()).backward();
  EXPECT_TRUE(scaler.step(optimizer)) << "after backward()";
}

TEST(GradScaler, RefusesToUpdateWithoutInspection) {
  GradScaler scaler(at::kCPU, {}, true);
  EXPECT_THROW(scaler.update(), Error);
}

TEST(GradScaler, StateGoesAroundThroughACheckpoint) {
  GradScaler first(at::kCPU, kFast, true);
  bad_step(first);
  good_step(first);
  good_step(first);
  GradScaler second(at::kCPU, kFast, true);
  const auto saved = first.state();
  auto live = second.state();
  ASSERT_EQ(live.size(), saved.size());
  for (const auto& [name, tensor] : saved) live.at(name).copy_(tensor);
  good_step(second);
  EXPECT_EQ(second.read_scale(), 65536.0) << "the third good step in a row, from 32768";
}

TEST(GradScaler, DisabledPassesEverythingThrough) {
  GradScaler scaler(at::kCPU, {}, false);
  const auto loss = at::full({}, 3.0);
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  auto gradient = bad_gradient();
  scaler.unscale({gradient});
  scaler.unscale({gradient});
  scaler.update();
  EXPECT_FALSE(scaler.grad_scale().has_value());
  EXPECT_FALSE(scaler.found_inf().has_value());
  EXPECT_TRUE(scaler.state().empty());
  EXPECT_EQ(scaler.read_scale(), 1.0);
}

TEST(GradScaler, RefusesSparseGradientsInALine) {
  GradScaler scaler(c10::kCPU, kFast, true);
  EXPECT_EQ(error_of(Exit::kRecipe,
                     [&] {
                       scaler.unscale({at::ones({4, 2}).to_sparse()});
                     }),
            "sparse gradients are not supported: expected dense ones. Leave out sparse = true of "
            "embeddings");
}

}  // namespace
}  // namespace brim::amp
