// Fully connected layers whose products are widened, against LibTorch's: values and gradients.
#include "framework/nn/fused/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "framework/amp/autocast.h"
#include "framework/nn/linear.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

struct LinearPass {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;
};

LinearPass pass(bool fused, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                const at::Tensor& gradient) {
  const auto leaf = [](const at::Tensor& t) {
    return t.defined() ? t.detach().clone().requires_grad_() : t;
  };
  const at::Tensor input = leaf(x), matrix = leaf(weight), added = leaf(bias);
  const at::Tensor y =
      fused ? fused_linear(input, matrix, added) : at::linear(input, matrix, added);
  y.backward(gradient);
  return {y.detach(), input.grad(), matrix.grad(), bias.defined() ? added.grad() : at::Tensor()};
}

// A vector, a matrix, rows of rows, rows that don't follow each other, one output.
TEST(FusedLinear, IsExactToBfloat16sRounding) {
  const Bf16Products are_there(false);
  at::manual_seed(1);
  const at::Tensor apart = at::randn({5, 3, 24}).transpose(0, 1);
  for (const at::Tensor& values :
       {at::randn({24}), at::randn({7, 24}), at::randn({2, 3, 24}), apart}) {
    for (const int64_t outputs : {1, 40}) {
      for (const bool has_bias : {true, false}) {
        SCOPED_TRACE(testing::Message() << values.sizes() << outputs << has_bias);
        const at::Tensor x = values.to(at::kBFloat16);
        const at::Tensor weight = at::randn({outputs, 24});
        const at::Tensor bias = has_bias ? at::randn({outputs}) : at::Tensor();
        const auto exact = [](const at::Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; };
        std::vector<int64_t> sizes = x.sizes().vec();
        sizes.back() = outputs;
        const at::Tensor g = at::randn(sizes).to(at::kBFloat16);
        const LinearPass found = pass(true, x, weight, bias, g);
        const LinearPass expected = pass(false, exact(x), exact(weight), exact(bias), exact(g));
        EXPECT_EQ(found.y.scalar_type(), at::kBFloat16);
        EXPECT_EQ(found.y.sizes(), g.sizes());
        EXPECT_EQ(found.x_gradient.scalar_type(), at::kBFloat16);
        EXPECT_LE(relative_error(found.y, expected.y), 3e-3);
        EXPECT_LE(relative_error(found.x_gradient, expected.x_gradient), 3e-3);
        EXPECT_LE(relative_error(found.weight_gradient, expected.weight_gradient), 1e-6);
        if (!has_bias) continue;
        EXPECT_LE(relative_error(found.bias_gradient, expected.bias_gradient), 1e-6);
      }
    }
  }
}

TEST(FusedLinear, GradientIsThatOfDifferences) {
  at::manual_seed(2);
  const auto leaf = [](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).requires_grad_();
  };
  const at::Tensor x = leaf({2, 3, 5}), weight = leaf({4, 5}), bias = leaf({4});
  const at::Tensor g = at::randn({2, 3, 4}, at::kDouble);
  const auto y = [&] { return fused_linear(x, weight, bias); };
  y().backward(g);
  for (const at::Tensor& one : {x, weight, bias}) {
    EXPECT_LE(relative_error(one.grad(), numerical_gradient(y, g, one.detach())), 1e-8);
  }
}

TEST(FusedLinear, AWeightsGradientLiesAsTheWeightDoes) {
  const Bf16Products are_there(false);
  const at::Tensor stored = at::randn({6, 4}).requires_grad_();
  const at::Tensor y = fused_linear(at::randn({3, 6}).to(at::kBFloat16), stored.t(), {});
  const auto gradients = torch::autograd::grad({y.sum()}, {stored});
  EXPECT_TRUE(gradients[0].is_contiguous());
}

TEST(FusedLinear, FrozenParametersAreNoHindrance) {
  const Bf16Products are_there(false);
  at::manual_seed(6);
  const at::Tensor x = at::randn({3, 6}).to(at::kBFloat16), weight = at::randn({4, 6});
  const at::Tensor bias = at::randn({4}), g = at::randn({3, 4}).to(at::kBFloat16);
  const LinearPass all = pass(true, x, weight, bias, g);
  const at::Tensor learned = bias.detach().clone().requires_grad_();
  fused_linear(x, weight, learned).backward(g);
  EXPECT_TRUE(learned.grad().equal(all.bias_gradient));
  const at::Tensor input = x.detach().clone().requires_grad_();
  fused_linear(input, weight, bias).backward(g);
  EXPECT_TRUE(input.grad().equal(all.x_gradient));
}

TEST(FusedLinear, ItsGradientHasNone) {
  const Bf16Products are_there(false);
  const at::Tensor x = at::randn({3, 6}).to(at::kBFloat16).requires_grad_();
  const at::Tensor y = fused_linear(x, at::randn({4, 6}), {});
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
}

/// `takes`: whether it is the fused operator that is expected.
LinearPass trained(Linear layer, const at::Tensor& images, bool fused, bool autocast, bool takes) {
  layer->zero_grad();
  const at::Tensor x = images.detach().clone().requires_grad_();
  const at::Tensor y = forward_of(layer, x, fused, autocast, "FusedLinear", takes);
  y.square().sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  return {y.detach(), x.grad(), layer->weight.grad().clone(), layer->bias.grad().clone()};
}

TEST(FusedLinear, ALayerIsThatOfLibTorch) {
  at::manual_seed(4);
  Linear layer(24, 40);
  const at::Tensor x = at::randn({2, 5, 24});
  for (const bool are_there : {true, false}) {
    const Bf16Products assumed(are_there);
    for (const bool autocast : {true, false}) {
      const LinearPass found = trained(layer, x, /*fused=*/true, autocast,
                                       /*takes=*/autocast && !are_there);
      const LinearPass expected = trained(layer, x, /*fused=*/false, autocast, /*takes=*/false);
      const double tolerance = autocast ? 1e-2 : 1e-6;
      EXPECT_LE(relative_error(found.y, expected.y), tolerance);
      EXPECT_LE(relative_error(found.x_gradient, expected.x_gradient), tolerance);
      EXPECT_LE(relative_error(found.weight_gradient, expected.weight_gradient), tolerance);
      EXPECT_LE(relative_error(found.bias_gradient, expected.bias_gradient), tolerance);
    }
  }
}

TEST(FusedLinear, OthersAreLeftToLibTorch) {
  const at::Tensor x = at::randn({3, 6}), weight = at::randn({4, 6});
  const auto bf16 = [](const at::Tensor& t) { return t.to(at::kBFloat16); };
  const Bf16Products are_missing(false);
  EXPECT_TRUE(has_fused_linear(bf16(x), bf16(weight)));
  EXPECT_FALSE(has_fused_linear(bf16(x), weight));
  EXPECT_FALSE(has_fused_linear(x, weight));
  EXPECT_FALSE(has_fused_linear(x.to(at::kHalf), weight.to(at::kHalf)));
  EXPECT_FALSE(has_fused_linear(bf16(x.narrow(0, 0, 0)), bf16(weight)));
  {
    const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
    EXPECT_TRUE(has_fused_linear(x, weight));
    EXPECT_FALSE(has_fused_linear(x.to(at::kLong), weight));
    EXPECT_FALSE(has_fused_linear(x, weight.to(at::kDouble)));
  }
  const Bf16Products are_there(true);
  EXPECT_FALSE(has_fused_linear(bf16(x), bf16(weight)));
}

}  // namespace
}  // namespace brim::nn
