// Fused bias and GELU against LibTorch's operators: values and gradients.
#include "framework/nn/fused/gelu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>

#include "framework/amp/autocast.h"
#include "framework/nn/fused/loops/gelu.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

constexpr Gelu kGelus[] = {Gelu::kErf, Gelu::kTanh};

at::Tensor plain_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form) {
  return at::gelu(x + bias, form == Gelu::kTanh ? "tanh" : "none");
}

struct GeluPass {
  at::Tensor y, x_gradient, bias_gradient;
};

template <class Function>
GeluPass pass(const Function& function, const at::Tensor& x, const at::Tensor& bias, Gelu form,
              const at::Tensor& gradient) {
  const at::Tensor input = x.detach().clone().requires_grad_();
  const at::Tensor added = bias.detach().clone().requires_grad_();
  const at::Tensor y = function(input, added, form);
  y.backward(gradient);
  return {y.detach(), input.grad(), added.grad()};
}

void expect_close(const GeluPass& found, const GeluPass& exact, double tolerance, double of_bias) {
  EXPECT_LE(relative_error(found.y, exact.y), tolerance);
  EXPECT_LE(relative_error(found.x_gradient, exact.x_gradient), tolerance);
  EXPECT_LE(relative_error(found.bias_gradient, exact.bias_gradient), of_bias);
  EXPECT_EQ(found.y.sizes(), exact.y.sizes());
}

/// f(x, bias, form, gradient): fewer channels than a vector has lanes, odd numbers, more than a
/// tile, more rows than are summed at once, several pieces.
void for_each_case(
    const std::function<void(const at::Tensor&, const at::Tensor&, Gelu, const at::Tensor&)>& f) {
  at::manual_seed(7);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{1}, {3, 7}, {2, 3, 33}, {5, 1030}, {700, 17}}) {
    for (const Gelu form : kGelus) {
      SCOPED_TRACE(testing::Message()
                   << at::IntArrayRef(sizes) << " form " << static_cast<int>(form));
      const auto values = [&] { return at::randn(sizes, at::kDouble); };
      f(values() * 3, at::randn({sizes.back()}, at::kDouble), form, values());
    }
  }
}

TEST(FusedBiasGelu, IsLibTorchsInFloat64) {
  for_each_case([](const at::Tensor& x, const at::Tensor& bias, Gelu form, const at::Tensor& g) {
    ASSERT_TRUE(has_fused_bias_gelu(x, bias));
    expect_close(pass(fused_bias_gelu, x, bias, form, g), pass(plain_gelu, x, bias, form, g), 1e-12,
                 1e-12);
  });
}

TEST(FusedBiasGelu, IsExactInFloat32) {
  for_each_case([](const at::Tensor& x, const at::Tensor& bias, Gelu form, const at::Tensor& g) {
    const at::Tensor in = x.to(at::kFloat), added = bias.to(at::kFloat), of = g.to(at::kFloat);
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    expect_close(pass(fused_bias_gelu, in, added, form, of),
                 pass(plain_gelu, wide(in), wide(added), form, wide(of)), 1e-6, 1e-5);
  });
}

TEST(FusedBiasGelu, IsExactToBf16sRounding) {
  for_each_case([](const at::Tensor& x, const at::Tensor& bias, Gelu form, const at::Tensor& g) {
    const at::Tensor in = x.to(at::kBFloat16), of = g.to(at::kBFloat16);
    const at::Tensor added = bias.to(at::kFloat);
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const GeluPass found = pass(fused_bias_gelu, in, added, form, of);
    EXPECT_EQ(found.y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(found.bias_gradient.scalar_type(), at::kFloat);
    // The bias's gradient is summed up before anything is rounded, of values within 3e-4.
    expect_close(found, pass(plain_gelu, wide(in), wide(added), form, wide(of)), 4e-3, 1e-4);
  });
}

TEST(FusedBiasGelu, IsExactFarFromZero) {
  const at::Tensor x = at::linspace(-14, 14, 2801, at::kDouble);
  const at::Tensor none = at::zeros({2801});
  for (const Gelu form : kGelus) {
    const at::Tensor y = fused_bias_gelu(x.to(at::kFloat), none, form).to(at::kDouble);
    const at::Tensor exact =
        form == Gelu::kErf ? x.to(at::kFloat).to(at::kDouble) * 0.5 *
                                 at::special_erfc(x.to(at::kFloat).to(at::kDouble) * -M_SQRT1_2)
                           : plain_gelu(x.to(at::kFloat).to(at::kDouble), none, form);
    // Relative to each value, where float32 has any digits of it and the reference has.
    const at::Tensor off = (y - exact).abs() / (exact.abs() + (form == Gelu::kErf ? 1e-30 : 1e-7));
    EXPECT_LE(off.max().item<double>(), 3e-5);
  }
  const at::Tensor bad = at::tensor({NAN, INFINITY, -1e30F, -1e38F});
  for (const Gelu form : kGelus) {
    const at::Tensor y = fused_bias_gelu(bad, at::zeros({4}), form);
    EXPECT_TRUE(y[0].isnan().item<bool>());
    EXPECT_EQ(y[1].item<float>(), INFINITY);
    EXPECT_EQ(y[2].item<float>(), 0);
    EXPECT_EQ(y[3].item<float>(), 0);
  }
}

TEST(FusedBiasGelu, IsExactToBf16sRoundingFarFromZero) {
  const at::Tensor x = at::linspace(-14, 14, 2801, at::kDouble).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kDouble), none = at::zeros({2801});
  for (const Gelu form : kGelus) {
    const at::Tensor in = x.clone().requires_grad_(), exact_in = wide.clone().requires_grad_();
    const at::Tensor y = fused_bias_gelu(in, none, form);
    const at::Tensor exact = form == Gelu::kErf
                                 ? exact_in * 0.5 * at::special_erfc(exact_in * -M_SQRT1_2)
                                 : plain_gelu(exact_in, none, form);
    const auto off = [](const at::Tensor& found, const at::Tensor& right) {
      return ((found.to(at::kDouble) - right).abs() / (right.abs() + 1e-6)).max().item<double>();
    };
    EXPECT_LE(off(y.detach(), exact.detach()), 4.3e-3);
    y.sum().backward();
    exact.sum().backward();
    // The gradient crosses zero near -0.75, where no digits of it are left to compare.
    const at::Tensor far = ((wide + 0.75).abs() > 0.1).to(at::kDouble);
    EXPECT_LE(off(in.grad() * far, exact_in.grad() * far), 6e-3);
  }
}

TEST(FusedBiasGelu, GradientIsThatOfDifferences) {
  for (const Gelu form : kGelus) {
    at::manual_seed(23);
    const at::Tensor x = at::randn({4, 5}, at::kDouble).requires_grad_();
    const at::Tensor bias = at::randn({5}, at::kDouble).requires_grad_();
    const at::Tensor g = at::randn({4, 5}, at::kDouble);
    const auto y = [&] { return fused_bias_gelu(x, bias, form); };
    y().backward(g);
    EXPECT_LE(relative_error(x.grad(), numerical_gradient(y, g, x.detach())), 1e-7);
    EXPECT_LE(relative_error(bias.grad(), numerical_gradient(y, g, bias.detach())), 1e-7);
  }
}

TEST(FusedBiasGelu, TakesTensorsOfAnyLayout) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({6, 4}), bias = at::randn({6}), g = at::randn({6, 4});
  const GeluPass found = pass([](const at::Tensor& in, const at::Tensor& b,
                                 Gelu form) { return fused_bias_gelu(in.t(), b, form); },
                              x, bias, Gelu::kErf, g.t());
  const GeluPass expected =
      pass(fused_bias_gelu, x.t().contiguous(), bias, Gelu::kErf, g.t().contiguous());
  EXPECT_TRUE(found.y.equal(expected.y));
  EXPECT_TRUE(found.x_gradient.equal(expected.x_gradient.t()));
  EXPECT_TRUE(found.bias_gradient.equal(expected.bias_gradient));
}

TEST(FusedBiasGelu, AnyNumberOfThreadsGivesTheSameBits) {
  const int before = at::get_num_threads();
  at::manual_seed(2);
  const at::Tensor x = at::randn({1000, 100}), bias = at::randn({100});
  at::set_num_threads(1);
  const GeluPass one = pass(fused_bias_gelu, x, bias, Gelu::kErf, x);
  at::set_num_threads(3);
  const GeluPass three = pass(fused_bias_gelu, x, bias, Gelu::kErf, x);
  at::set_num_threads(before);
  EXPECT_TRUE(three.y.equal(one.y));
  EXPECT_TRUE(three.bias_gradient.equal(one.bias_gradient));
}

TEST(FusedBiasGelu, EveryInstructionSetGivesTheSame) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 37}) * 3, bias = at::randn({37});
  for (const loops::GeluForm form : {loops::GeluForm::kErf, loops::GeluForm::kTanh}) {
    const at::Tensor exact =
        at::gelu((x + bias).to(at::kDouble), form == loops::GeluForm::kTanh ? "tanh" : "none");
    for (const loops::Isa isa : loops::kAllIsas) {
      if (!loops::is_available(isa)) continue;
      at::Tensor y = at::empty_like(x);
      loops::gelu_table(isa).of_float.forward(form, {3, 37}, x.const_data_ptr<float>(),
                                              bias.const_data_ptr<float>(),
                                              y.mutable_data_ptr<float>());
      EXPECT_LE(relative_error(y, exact), 1e-6);
    }
  }
}

TEST(FusedBiasGelu, ALinearLayerAndItsGelu) {
  const Bf16Products are_there(true);
  for (const bool autocast : {false, true}) {
    at::manual_seed(4);
    Linear layer(20, 30);
    const at::Tensor x = at::randn({5, 20});
    at::Tensor results[2], gradients[2];
    for (const bool fused : {false, true}) {
      layer->zero_grad();
      {
        const amp::Autocast scope(
            c10::kCPU, {.compute = autocast ? at::kBFloat16 : at::kFloat, .autocast = autocast});
        results[fused] = linear_gelu(layer, x, fused ? Fused::kAlways : Fused::kNever);
      }
      EXPECT_EQ(results[fused].scalar_type(), autocast ? at::kBFloat16 : at::kFloat);
      EXPECT_EQ(results[fused].grad_fn()->name().find("FusedBiasGelu") != std::string::npos, fused);
      results[fused].sum().backward();
      gradients[fused] = layer->bias.grad();
    }
    EXPECT_LE(relative_error(results[1], results[0]), autocast ? 1e-2 : 1e-6);
    EXPECT_LE(relative_error(gradients[1], gradients[0]), autocast ? 1e-2 : 1e-6);
  }
}

TEST(FusedBiasGelu, StandsBackWhereItDoesNotApply) {
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(has_fused_bias_gelu(x, at::zeros({4})));
  EXPECT_FALSE(has_fused_bias_gelu(x, at::zeros({3})));
  EXPECT_FALSE(has_fused_bias_gelu(x, at::zeros({4}, at::kDouble)));
  EXPECT_FALSE(has_fused_bias_gelu(x.to(at::kHalf), at::zeros({4})));
  EXPECT_FALSE(has_fused_bias_gelu(at::zeros({0, 4}), at::zeros({4})));
  EXPECT_EQ(bias_gelu(at::zeros({0, 4}), at::zeros({4}), Gelu::kErf, Fused::kAlways, true).size(0),
            0);
}

TEST(FusedBiasGelu, ItsGradientHasNone) {
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const at::Tensor y = fused_bias_gelu(x, at::zeros({4}), Gelu::kErf).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true),
               c10::NotImplementedError);
}

}  // namespace
}  // namespace brim::nn
