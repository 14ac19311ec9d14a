#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/error.h"
#include "framework/optim/clip.h"
#include "framework/optim/ema.h"

namespace brim::optim {
namespace {

TEST(Clip, ScalesToTheJointNorm) {
  const auto first = at::full({1}, 3.0);
  const auto second = at::full({1}, 4.0);
  const auto norm = clip_grad_norm({first, second}, 1.0);
  EXPECT_FLOAT_EQ(norm.item<float>(), 5.0F);
  EXPECT_NEAR(first.item<float>(), 0.6, 1e-6);
  EXPECT_NEAR(second.item<float>(), 0.8, 1e-6);
}

TEST(Clip, LeavesSmallGradientsAlone) {
  const auto gradient = at::full({4}, 0.25);
  clip_grad_norm({gradient}, 1.0);
  EXPECT_TRUE(gradient.equal(at::full({4}, 0.25)));
}

// An infinity in one gradient would become zeros and NaN in all the others.
TEST(Clip, LeavesGradientsAloneWhereTheNormIsNotFinite) {
  for (const float bad : {INFINITY, NAN}) {
    const auto good = at::full({4}, 2.0);
    const auto norm = clip_grad_norm({good, at::full({2}, bad)}, 1.0);
    EXPECT_FALSE(std::isfinite(norm.item<float>()));
    EXPECT_TRUE(good.equal(at::full({4}, 2.0)));
  }
}

TEST(Clip, TakesMixedTypesAndNone) {
  const auto low = at::full({1}, 3.0, at::TensorOptions().dtype(at::kBFloat16));
  const auto high = at::full({1}, 4.0, at::TensorOptions().dtype(at::kDouble));
  EXPECT_EQ(clip_grad_norm({low, high}, 2.5).item<double>(), 5.0);
  EXPECT_EQ(low.item<float>(), 1.5F);
  EXPECT_NEAR(high.item<double>(), 2.0, 1e-5);
  EXPECT_EQ(clip_grad_norm({}, 1.0).item<double>(), 0.0);
}

Ema::Parameters ema_parameters() {
  return {{"weight", at::full({2, 2}, 1.0).requires_grad_()},
          {"bias", at::full({3}, 2.0, at::TensorOptions().dtype(at::kDouble)).requires_grad_()}};
}

void set(const Ema::Parameters& parameters, double value) {
  for (const auto& [name, parameter] : parameters) parameter.data().fill_(value);
}

TEST(Ema, StartsAtTheParametersAndFollowsThem) {
  const auto parameters = ema_parameters();
  Ema ema(parameters, 0.75);
  EXPECT_EQ(ema.state().at("ema.weight")[1][1].item<double>(), 1.0);
  set(parameters, 5.0);
  ema.update();
  EXPECT_EQ(ema.state().at("ema.weight")[1][1].item<double>(), 0.75 * 1.0 + 0.25 * 5.0);
  EXPECT_EQ(ema.state().at("ema.bias")[2].item<double>(), 0.75 * 2.0 + 0.25 * 5.0);
}

TEST(Ema, ASkippedStepDoesNotCount) {
  const auto parameters = ema_parameters();
  Ema ema(parameters, 0.75);
  set(parameters, 5.0);
  ema.update(at::ones({}));
  EXPECT_EQ(ema.state().at("ema.weight")[0][0].item<double>(), 1.0);
  ema.update(at::zeros({}));
  EXPECT_EQ(ema.state().at("ema.weight")[0][0].item<double>(), 2.0);
  EXPECT_EQ(ema.state().at("ema.bias")[0].item<double>(), 2.75);
}

TEST(Ema, SwapLendsTheAveragesToTheModelAndGivesBackTheSameBits) {
  const auto parameters = ema_parameters();
  Ema ema(parameters, 0.75);
  set(parameters, 1.0 / 3.0);
  ema.update();
  const void* const memory = parameters[0].second.data_ptr();
  const auto before = parameters[0].second.detach().clone();
  const auto average = ema.state().at("ema.weight").clone();
  {
    const Ema::Swap swap(ema);
    EXPECT_TRUE(parameters[0].second.equal(average));
    EXPECT_TRUE(parameters[0].second.requires_grad());
    EXPECT_THROW(ema.update(), Error);
  }
  EXPECT_TRUE(parameters[0].second.equal(before));
  EXPECT_EQ(parameters[0].second.data_ptr(), memory);
  EXPECT_TRUE(ema.state().at("ema.weight").equal(average));
  ema.update();
}

TEST(Ema, SwapsBackAfterAnException) {
  const auto parameters = ema_parameters();
  Ema ema(parameters, 0.5);
  set(parameters, 9.0);
  try {
    const Ema::Swap swap(ema);
    throw Error(Exit::kData, "an image could not be read");
  } catch (const Error&) {
  }
  EXPECT_EQ(parameters[0].second[0][0].item<double>(), 9.0);
}

TEST(Ema, ContinuesFromSavedState) {
  const auto parameters = ema_parameters();
  Ema first(parameters, 0.9);
  set(parameters, 4.0);
  first.update();
  Ema second(parameters, 0.9);
  auto live = second.state();
  for (const auto& [name, tensor] : first.state()) live.at(name).copy_(tensor);
  first.update();
  second.update();
  EXPECT_TRUE(second.state().at("ema.weight").equal(first.state().at("ema.weight")));
}

}  // namespace
}  // namespace brim::optim
