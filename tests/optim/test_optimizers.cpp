#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/optim/lamb.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/optim/sgd.h"

namespace brim::optim {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

std::unique_ptr<OptimizerConfig> make_config(std::string_view name) {
  static const bool registered = (register_optimizers(), true);
  (void)registered;
  return recipe::registry<OptimizerConfig>().make(name);
}

/// A weight and a bias with gradients; the bias doesn't decay.
Named make_parameters(at::ScalarType dtype = at::kFloat) {
  Named parameters;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"weight", {4, 3}}, {"bias", {4}}}) {
    at::Tensor parameter = at::randn(shape, dtype).requires_grad_();
    parameter.mutable_grad() = at::randn(shape, dtype);
    parameters.emplace_back(name, parameter);
  }
  return parameters;
}

std::map<std::string, at::Tensor> copies(const State& tensors) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, tensor] : tensors) result[name] = tensor.detach().clone();
  return result;
}

std::vector<std::string> keys(const State& state) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : state) result.push_back(name);
  return result;
}

class EveryOptimizer : public testing::TestWithParam<const char*> {};

TEST_P(EveryOptimizer, HasItsWholeStateFromTheStart) {
  const auto optimizer = make_config(GetParam())->build(decay_groups(make_parameters(), 0.1));
  const auto before = keys(optimizer->state());
  EXPECT_FALSE(before.empty());
  optimizer->step(0.1);
  EXPECT_EQ(keys(optimizer->state()), before);
}

TEST_P(EveryOptimizer, ContinuesFromSavedState) {
  auto first_parameters = make_parameters();
  auto first = make_config(GetParam())->build(decay_groups(first_parameters, 0.1));
  first->step(0.1);
  first->step(0.1);

  Named second_parameters;
  for (const auto& [name, parameter] : first_parameters) {
    second_parameters.emplace_back(name, parameter.detach().clone().requires_grad_());
    second_parameters.back().second.mutable_grad() = parameter.grad().clone();
  }
  auto second = make_config(GetParam())->build(decay_groups(second_parameters, 0.1));
  auto live = second->state();
  for (const auto& [name, tensor] : first->state()) live.at(name).copy_(tensor);

  first->step(0.1);
  second->step(0.1);
  for (size_t i = 0; i < first_parameters.size(); ++i) {
    EXPECT_TRUE(first_parameters[i].second.equal(second_parameters[i].second));
  }
}

TEST_P(EveryOptimizer, ASkippedStepLeavesNoTrace) {
  auto parameters = make_parameters();
  const auto optimizer = make_config(GetParam())->build(decay_groups(parameters, 0.1));
  const StepScale skip = {.grad_scale = at::full({}, 8.0), .found_inf = at::ones({})};
  // The first step of all is the delicate one: no bias correction is defined yet.
  for (int step = 0; step < 2; ++step) {
    const auto old_state = copies(optimizer->state());
    const auto old_parameters = copies({parameters.begin(), parameters.end()});
    parameters[0].second.mutable_grad() = at::full({4, 3}, INFINITY);
    parameters[1].second.mutable_grad() = at::full({4}, NAN);
    optimizer->step(0.1, skip);
    for (const auto& [name, tensor] : optimizer->state()) {
      EXPECT_TRUE(tensor.equal(old_state.at(name))) << name;
    }
    for (const auto& [name, parameter] : parameters) {
      EXPECT_TRUE(parameter.equal(old_parameters.at(name))) << name;
      parameter.mutable_grad() = at::ones(parameter.sizes());
    }
    optimizer->step(0.1);
    EXPECT_FALSE(parameters[0].second.equal(old_parameters.at("weight")));
  }
}

TEST_P(EveryOptimizer, LeavesParametersWithoutGradientAlone) {
  auto parameters = make_parameters();
  const auto optimizer = make_config(GetParam())->build(decay_groups(parameters, 0.1));
  parameters[1].second.mutable_grad().reset();
  const auto bias = parameters[1].second.detach().clone();
  const auto weight = parameters[0].second.detach().clone();
  optimizer->step(0.1);
  EXPECT_TRUE(parameters[1].second.equal(bias));
  EXPECT_FALSE(parameters[0].second.equal(weight));
}

TEST_P(EveryOptimizer, StepsWithoutAnyGradient) {
  auto parameters = make_parameters();
  const auto optimizer = make_config(GetParam())->build(decay_groups(parameters, 0.1));
  optimizer->zero_grad();
  const auto weight = parameters[0].second.detach().clone();
  optimizer->step(0.1);
  EXPECT_TRUE(parameters[0].second.equal(weight));
}

TEST_P(EveryOptimizer, TakesEveryFloatingTypeSideBySide) {
  Named parameters;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor parameter = at::ones({4, 3}, dtype).requires_grad_();
    parameter.mutable_grad() = at::ones({4, 3}, dtype);
    parameters.emplace_back(c10::toString(dtype), parameter);
  }
  const auto optimizer = make_config(GetParam())->build(decay_groups(parameters, 0.0));
  optimizer->step(0.25);
  const double expected = parameters[1].second[0][0].item<double>();
  EXPECT_LT(expected, 1.0);
  for (const auto& [name, parameter] : parameters) {
    EXPECT_NEAR(parameter[3][2].item<double>(), expected, 0.01) << name;
  }
}

// channels_last: a gradient in another memory order than its parameter's.
TEST_P(EveryOptimizer, TakesGradientsInAnotherMemoryOrder) {
  const auto start = at::randn({4, 3, 2, 2});
  const auto gradient = at::randn({4, 3, 2, 2});
  const auto stepped = [&](at::MemoryFormat of_parameter, at::MemoryFormat of_gradient) {
    at::Tensor parameter = start.clone().contiguous(of_parameter).requires_grad_();
    parameter.mutable_grad() = gradient.contiguous(of_gradient);
    const auto optimizer = make_config(GetParam())->build(decay_groups({{"w", parameter}}, 0.1));
    optimizer->step(0.1);
    return parameter.detach().contiguous();
  };
  const auto plain = stepped(at::MemoryFormat::Contiguous, at::MemoryFormat::Contiguous);
  const auto last = at::MemoryFormat::ChannelsLast;
  EXPECT_TRUE(stepped(last, last).allclose(plain));
  EXPECT_TRUE(stepped(last, at::MemoryFormat::Contiguous).allclose(plain));
  EXPECT_TRUE(stepped(at::MemoryFormat::Contiguous, last).allclose(plain));
}

INSTANTIATE_TEST_SUITE_P(Names, EveryOptimizer,
                         testing::Values("sgd", "adam", "adamw", "lamb", "lars"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Optimizer, ZeroGradLeavesGradientsUndefined) {
  auto parameters = make_parameters();
  SgdConfig().build(decay_groups(parameters, 0.0))->zero_grad();
  EXPECT_FALSE(parameters[0].second.grad().defined());
  EXPECT_FALSE(parameters[1].second.grad().defined());
}

TEST(Optimizer, NesterovWithoutMomentumIsRefused) {
  SgdConfig config;
  config.momentum = 0.0;
  config.nesterov = true;
  try {
    config.build(decay_groups(make_parameters(), 0.0));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
  }
}

TEST(Optimizer, SgdWithoutMomentumKeepsNoState) {
  SgdConfig config;
  config.momentum = 0.0;
  EXPECT_TRUE(config.build(decay_groups(make_parameters(), 0.0))->state().empty());
}

TEST(Optimizer, LambBuildsWithoutParameters) {
  const auto optimizer = LambConfig().build({});
  optimizer->step(0.1);
  EXPECT_TRUE(optimizer->state().empty());
}

TEST(Optimizer, StateIsNamedAfterTheParameters) {
  const auto optimizer = make_config("adamw")->build(decay_groups(make_parameters(), 0.1));
  EXPECT_THAT(keys(optimizer->state()),
              testing::ElementsAre("first_moment.bias", "first_moment.weight", "second_moment.bias",
                                   "second_moment.weight", "step.bias", "step.weight"));
}

TEST(ParameterGroups, NormsAndBiasesDoNotDecay) {
  Named parameters;
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"conv.weight", {2, 3, 1, 1}},
                                                                 {"bn.weight", {2}},
                                                                 {"bn.bias", {2}},
                                                                 {"fc.weight", {5, 2}},
                                                                 {"temperature", {}}}) {
    parameters.emplace_back(name, at::ones(shape).requires_grad_());
  }
  parameters.emplace_back("frozen.weight", at::ones({2, 2}));

  const auto names = [](const ParameterGroup& group) {
    std::vector<std::string> result;
    for (const auto& [name, parameter] : group.parameters) result.push_back(name);
    return result;
  };
  const auto groups = decay_groups(parameters, 0.1);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_THAT(names(groups[0]), testing::ElementsAre("conv.weight", "fc.weight"));
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  EXPECT_THAT(names(groups[1]), testing::ElementsAre("bn.weight", "bn.bias", "temperature"));

  EXPECT_EQ(decay_groups(parameters, 0.0).size(), 1U) << "nothing to tell apart";
}

}  // namespace
}  // namespace brim::optim
