// Convolutions of few pixels as products of matrices, and of separate patches as linear layers,
// against LibTorch's: values and gradients.
#include "framework/nn/fused/convolution.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/nn/convolution.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/model.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

using Kernel = std::array<int64_t, 2>;

struct ConvolutionPass {
  at::Tensor y, x_gradient, weight_gradient;
};

ConvolutionPass pass(bool fused, const at::Tensor& x, const at::Tensor& weight,
                     const ConvolutionSteps& steps, const at::Tensor& gradient,
                     int64_t groups = 1) {
  const bool is_product = has_convolution_product(x, weight.to(x.scalar_type()), steps, groups);
  const ConvolutionForm form = is_product ? ConvolutionForm::kProduct : ConvolutionForm::kDirect;
  const auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
  const at::Tensor input = leaf(x), kernel = leaf(weight);
  const at::Tensor y =
      fused ? fused_convolution(input, kernel, steps, groups, form)
            : at::conv2d(input, kernel, {}, steps.stride, steps.padding, steps.dilation, groups);
  y.backward(gradient);
  return {y.detach(), input.grad(), kernel.grad()};
}

void expect_close(const ConvolutionPass& found, const ConvolutionPass& exact, double tolerance) {
  EXPECT_EQ(found.y.sizes(), exact.y.sizes());
  EXPECT_LE(relative_error(found.y, exact.y), tolerance);
  EXPECT_LE(relative_error(found.x_gradient, exact.x_gradient), tolerance);
  EXPECT_LE(relative_error(found.weight_gradient, exact.weight_gradient), tolerance);
}

/// f(x, weight, steps, gradient), in float64: kernels of one pixel and many, larger than the image,
/// wide and high ones; steps over pixels, padding, gaps; a single output pixel and several.
void for_each_case(const std::function<void(const at::Tensor&, const at::Tensor&,
                                            const ConvolutionSteps&, const at::Tensor&)>& f) {
  struct Case {
    std::vector<int64_t> x, weight;
    ConvolutionSteps steps;
  };
  const Case cases[] = {
      {{2, 3, 1, 1}, {8, 3, 1, 1}, {}},
      {{1, 5, 2, 2}, {16, 5, 1, 1}, {}},
      {{2, 4, 3, 3}, {32, 4, 1, 1}, {.stride = {2, 2}}},
      {{2, 7, 1, 1}, {8, 7, 3, 3}, {.padding = {1, 1}}},
      {{2, 6, 4, 4}, {128, 6, 3, 3}, {.padding = {1, 1}}},
      {{3, 4, 5, 4}, {96, 4, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{1, 3, 4, 6}, {64, 3, 1, 7}, {.stride = {1, 3}, .padding = {0, 3}}},
      {{1, 2, 7, 5}, {64, 2, 3, 2}, {.padding = {2, 0}, .dilation = {3, 2}}},
  };
  at::manual_seed(11);
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(c.x) << " " << at::IntArrayRef(c.weight));
    const auto values = [](at::IntArrayRef sizes) {
      return at::randn(sizes, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor x = values(c.x), weight = values(c.weight);
    ASSERT_TRUE(has_convolution_product(x, weight, c.steps, 1));
    const auto& [stride, padding, dilation] = c.steps;
    f(x, weight, c.steps, values(at::conv2d(x, weight, {}, stride, padding, dilation).sizes()));
  }
}

TEST(FusedConvolution, IsLibTorchsInFloat64) {
  for_each_case([](const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                   const at::Tensor& g) {
    expect_close(pass(true, x, weight, steps, g), pass(false, x, weight, steps, g), 1e-13);
  });
}

TEST(FusedConvolution, IsExactToEachFormatsRounding) {
  for_each_case([](const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                   const at::Tensor& g) {
    for (const auto& [type, tolerance] : {std::pair(at::kFloat, 1e-6), {at::kBFloat16, 5e-3}}) {
      const auto rounded = [type = type](const at::Tensor& t) { return t.to(type); };
      const auto wide = [&](const at::Tensor& t) { return rounded(t).to(at::kDouble); };
      const ConvolutionPass found = pass(true, rounded(x), rounded(weight), steps, rounded(g));
      EXPECT_EQ(found.y.scalar_type(), type);
      expect_close(found, pass(false, wide(x), wide(weight), steps, wide(g)), tolerance);
    }
  });
}

TEST(FusedConvolution, GradientIsThatOfDifferences) {
  at::manual_seed(3);
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images({1, 2, 3, 3}).requires_grad_();
  const at::Tensor weight = images({16, 2, 3, 3}).requires_grad_();
  const at::Tensor g = images({1, 16, 2, 2});
  const auto y = [&] {
    return fused_convolution(x, weight, {.stride = {2, 2}, .padding = {1, 1}}, /*groups=*/1,
                             ConvolutionForm::kProduct);
  };
  y().backward(g);
  EXPECT_LE(relative_error(x.grad(), numerical_gradient(y, g, x.detach())), 1e-7);
  EXPECT_LE(relative_error(weight.grad(), numerical_gradient(y, g, weight.detach())), 1e-7);
}

TEST(FusedConvolution, GradientsLieAsTheWeightsDo) {
  for_each_case([](const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                   const at::Tensor& g) {
    const ConvolutionPass found = pass(true, x, weight, steps, g);
    EXPECT_TRUE(found.weight_gradient.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(found.x_gradient.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(found.y.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(FusedConvolution, AnyNumberOfThreadsDoes) {
  const int before = at::get_num_threads();
  at::manual_seed(2);
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images({4, 64, 4, 4}), weight = images({256, 64, 3, 3});
  const ConvolutionSteps steps = {.padding = {1, 1}};
  const at::Tensor g = images({4, 256, 4, 4});
  at::set_num_threads(1);
  const ConvolutionPass one = pass(true, x, weight, steps, g);
  at::set_num_threads(3);
  expect_close(pass(true, x, weight, steps, g), one, 1e-6);
  at::set_num_threads(before);
}

// Also with few output pixels, which are products of matrices then, and with weights and images in
// any memory order.
TEST(FusedConvolution, WidenedIsExactToBfloat16sRounding) {
  const Bf16Products are_there(false);
  struct Case {
    std::vector<int64_t> x, weight;
    ConvolutionSteps steps;
    int64_t groups;
  };
  const Case cases[] = {
      {{2, 16, 9, 8}, {8, 16, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}}, 1},
      {{2, 16, 9, 8}, {32, 4, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}, 4},
      {{1, 8, 2, 2}, {64, 8, 1, 1}, {}, 1},
  };
  at::manual_seed(17);
  for (const Case& c : cases) {
    for (const auto order : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
      const auto& [stride, padding, dilation] = c.steps;
      const auto values = [&](at::IntArrayRef sizes) {
        return at::randn(sizes).to(at::kBFloat16).contiguous(order);
      };
      const at::Tensor x = values(c.x), weight = at::randn(c.weight).contiguous(order);
      ASSERT_TRUE(has_upcast_convolution(x, weight.to(at::kBFloat16)));
      const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const at::Tensor g = values(
          at::conv2d(exact(x), exact(weight), {}, stride, padding, dilation, c.groups).sizes());
      const ConvolutionPass found = pass(true, x, weight, c.steps, g, c.groups);
      EXPECT_EQ(found.y.scalar_type(), at::kBFloat16);
      EXPECT_EQ(found.x_gradient.scalar_type(), at::kBFloat16);
      const ConvolutionPass expected =
          pass(false, exact(x), exact(weight), c.steps, exact(g), c.groups);
      expect_close(found, expected, 3e-3);
      EXPECT_LE(relative_error(found.weight_gradient, expected.weight_gradient), 1e-6);
    }
  }
}

TEST(FusedConvolution, OthersAreLeftToLibTorch) {
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const ConvolutionSteps steps = {.padding = {1, 1}};
  const at::Tensor weight = images({64, 4, 3, 3});
  const auto bf16 = [](const at::Tensor& t) { return t.to(at::kBFloat16); };
  const auto has = [&](const at::Tensor& x, const at::Tensor& by, const ConvolutionSteps& moves,
                       int64_t groups = 1) {
    return has_convolution_product(x, by, moves, groups);
  };
  EXPECT_TRUE(has(images({2, 4, 16, 8}), weight, steps));
  const at::Tensor large = images({2, 4, 17, 8});  // laid out, its patches take more memory
  EXPECT_EQ(has(large, weight, steps), cpu::multiplies_float_tiles());
  EXPECT_TRUE(has(images({2, 4, 90, 80}), images({64, 4, 1, 1}), {}));  // no patches
  EXPECT_TRUE(has(bf16(images({2, 4, 8, 8})), bf16(weight), steps));
  EXPECT_FALSE(has(bf16(images({1, 4, 4, 4})), weight, steps));  // two formats
  EXPECT_FALSE(has(at::randn({1, 4, 4, 4}), weight, steps));     // another layout
  EXPECT_FALSE(has(images({1, 4, 4, 4}), at::randn({64, 4, 3, 3}), steps));
  EXPECT_FALSE(has(images({1, 4, 4, 4}).to(at::kHalf), weight, steps));
  EXPECT_FALSE(has(images({1, 4, 1, 1}), weight, {}));  // larger than the image
  EXPECT_FALSE(has(images({1, 4, 2, 2}), weight, {.stride = {2, 2}}));
  EXPECT_FALSE(has(images({1, 4, 3, 3}), weight, {.stride = {0, 0}}));
  EXPECT_FALSE(has(images({1, 4, 3, 3}), weight, {.padding = {-1, 0}}));
  EXPECT_FALSE(has(images({1, 4, 3, 3}), weight, {.dilation = {0, 1}}));
  EXPECT_FALSE(has(images({0, 4, 4, 4}), weight, steps));
  EXPECT_FALSE(has(images({2, 8, 8, 8}), weight, steps, 2));
  const Bf16Products are_there(true);
  EXPECT_FALSE(has(bf16(large), bf16(weight), steps));
  EXPECT_FALSE(has_upcast_convolution(bf16(images({1, 4, 4, 4})), bf16(weight)));
}

// --- the weight's gradient as a product ----------------------------------------------------------

TEST(FusedConvolution, ItsWeightsGradientAloneIsAProduct) {
  at::manual_seed(19);
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes).to(at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const Bf16Products are_there(true);
  const at::Tensor x = images({3, 20, 9, 7}), weight = images({36, 20, 1, 1});
  const at::Tensor g = images({3, 36, 9, 7});
  if (!has_weight_gradient(x, weight, {}, /*groups=*/1)) return;  // the CPU has no kernel for it
  const auto passed = [&](const at::Tensor& gradient) {
    const at::Tensor input = x.clone().requires_grad_(), kernel = weight.clone().requires_grad_();
    const at::Tensor y =
        fused_convolution(input, kernel, {}, /*groups=*/1, ConvolutionForm::kWeightGradient);
    y.backward(gradient);
    EXPECT_TRUE(kernel.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
    return ConvolutionPass{y.detach(), input.grad(), kernel.grad()};
  };
  const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const ConvolutionPass expected = pass(false, exact(x), exact(weight), {}, exact(g));
  expect_close(passed(g), expected, 5e-3);
  expect_close(passed(g.contiguous()), expected, 5e-3);
  EXPECT_FALSE(fits_branch(x, weight, {}));
  EXPECT_FALSE(has_weight_gradient(x, weight, {.stride = {2, 2}}, 1));
  EXPECT_FALSE(has_weight_gradient(x.to(at::kFloat), weight.to(at::kFloat), {}, 1));
  EXPECT_FALSE(has_weight_gradient(images({3, 20, 3, 3}), images({36, 20, 3, 3}), {}, 1));
  Conv2d layer(torch::nn::Conv2dOptions(20, 36, 1).bias(false));
  use_channels_last(*layer);
  const at::Tensor in = x.detach().requires_grad_();
  forward_of(layer, in, true, true, "FusedConvolution", true).sum().backward();
  const at::Tensor learned = layer->weight.grad().clone();
  layer->zero_grad();
  forward_of(layer, in, false, true, "FusedConvolution", false).sum().backward();
  EXPECT_LE(relative_error(learned, layer->weight.grad()), 5e-3);
}

// --- branches ------------------------------------------------------------------------------------

/// Gradients of x and weight where y and, unless `scale` is 0, scale · x are read.
ConvolutionPass branch_pass(bool fused, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& g, double scale) {
  const at::Tensor input = x.clone().requires_grad_(), kernel = weight.clone().requires_grad_();
  const at::Tensor outer = input * 1;
  const Branch branch =
      fused ? fused_branch(outer, kernel, {}) : Branch{at::conv2d(outer, kernel), outer};
  std::vector<at::Tensor> results = {branch.y}, gradients = {g};
  if (scale != 0) {
    results.push_back(branch.x * scale);
    gradients.push_back(at::ones_like(x));
  }
  torch::autograd::backward(results, gradients);
  return {branch.y.detach(), input.grad(), kernel.grad()};
}

TEST(FusedBranch, AddsToTheOtherReadersGradient) {
  at::manual_seed(21);
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images({2, 6, 5, 4}), weight = images({8, 6, 1, 1});
  const at::Tensor g = images({2, 8, 5, 4});
  for (const double scale : {0.0, 3.0}) {
    expect_close(branch_pass(true, x, weight, g, scale), branch_pass(false, x, weight, g, scale),
                 1e-13);
    const auto rounded = [](const at::Tensor& t) { return t.to(at::kBFloat16); };
    const auto wide = [&](const at::Tensor& t) { return rounded(t).to(at::kDouble); };
    expect_close(branch_pass(true, rounded(x), rounded(weight), rounded(g), scale),
                 branch_pass(false, wide(x), wide(weight), wide(g), scale), 5e-3);
  }
}

TEST(FusedBranch, AGradientThatOthersHoldIsLeftAlone) {
  at::manual_seed(22);
  const at::Tensor x = at::randn({1, 2, 3, 3}, at::kDouble)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .requires_grad_();
  const at::Tensor weight = at::randn({4, 2, 1, 1}, at::kDouble)
                                .contiguous(at::MemoryFormat::ChannelsLast)
                                .requires_grad_();
  const Branch branch = fused_branch(x, weight, {});
  branch.x.retain_grad();
  const at::Tensor given = at::ones_like(x);
  torch::autograd::backward({branch.y.sum(), branch.x}, {at::ones({}, at::kDouble), given});
  EXPECT_TRUE(given.eq(1).all().item<bool>());
  EXPECT_TRUE(branch.x.grad().eq(1).all().item<bool>());
  const at::Tensor of_y = weight.detach().sum(0, /*keepdim=*/true).expand_as(x);
  EXPECT_LE(relative_error(x.grad(), of_y + 1), 1e-13);
}

TEST(FusedBranch, OnlyOneReaderMayBeThere) {
  const at::Tensor x = at::randn({1, 2, 3, 3}, at::kDouble)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .requires_grad_();
  const at::Tensor weight =
      at::randn({4, 2, 1, 1}, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
  (fused_branch(x, weight, {}).x * 2).sum().backward();
  EXPECT_TRUE(x.grad().eq(2).all().item<bool>());
}

TEST(FusedBranch, ALayerTakesItWhereItCan) {
  at::manual_seed(23);
  Conv2d layer(torch::nn::Conv2dOptions(8, 16, 1).bias(false));
  use_channels_last(*layer);
  use_fused(*layer, Fused::kAlways);
  const auto is_fused = [&](const at::Tensor& x, Conv2d& by) {
    const Branch branch = by->forward_branch(x);
    EXPECT_TRUE(branch.y.equal(by->forward(x)));
    EXPECT_TRUE(branch.x.equal(x));
    return branch.y.grad_fn() != nullptr &&
           branch.y.grad_fn()->name().find("FusedBranch") != std::string::npos;
  };
  const at::Tensor x = at::randn({2, 8, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor learned = x.clone().requires_grad_();
  EXPECT_TRUE(is_fused(learned, layer));
  EXPECT_FALSE(is_fused(x, layer));  // which has no gradient
  EXPECT_FALSE(is_fused(x.contiguous().requires_grad_(), layer));
  Conv2d strided(torch::nn::Conv2dOptions(8, 16, 1).bias(false).stride(2));
  Conv2d biased(torch::nn::Conv2dOptions(8, 16, 1));
  for (Conv2d& other : {std::ref(strided), std::ref(biased)}) {
    use_channels_last(*other);
    use_fused(*other, Fused::kAlways);
    EXPECT_FALSE(is_fused(learned, other));
  }
  const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
  EXPECT_FALSE(is_fused(learned, layer));  // cast on its way
}

struct PatchPass {
  at::Tensor y, x_gradient, weight_gradient;
  bool is_of_patches;
};

PatchPass patch_pass(Conv2d& layer, const at::Tensor& x, Fused when, bool autocast) {
  use_fused(*layer, when);
  layer->zero_grad();
  const at::Tensor in = x.detach().clone().requires_grad_();
  const amp::Autocast scope(
      c10::kCPU, {.compute = autocast ? at::kBFloat16 : at::kFloat, .autocast = autocast});
  const at::Tensor y = layer->forward(in);
  y.square().sum().backward();
  return {y.detach(), in.grad(), layer->weight.grad().clone(),
          y.grad_fn()->name().find("Permute") != std::string::npos};
}

// Of one image and several, with many patches and few, a bias and none, high and wide kernels.
TEST(ConvolutionOfSeparatePatches, IsThatOfLibTorch) {
  const Bf16Products are_there(true);
  at::manual_seed(31);
  for (const auto& [sizes, kernel] : std::vector<std::pair<std::vector<int64_t>, Kernel>>{
           {{1, 3, 8, 8}, {4, 4}}, {{6, 4, 32, 32}, {2, 2}}, {{2, 2, 6, 8}, {3, 4}}}) {
    for (const bool has_bias : {true, false}) {
      const torch::ExpandingArray<2> size(kernel);
      Conv2d layer(torch::nn::Conv2dOptions(sizes[1], 10, size).stride(size).bias(has_bias));
      use_channels_last(*layer);
      const at::Tensor x = at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
      for (const bool autocast : {false, true}) {
        SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << has_bias << autocast);
        const PatchPass found = patch_pass(layer, x, Fused::kAlways, autocast);
        const PatchPass plain = patch_pass(layer, x, Fused::kNever, autocast);
        EXPECT_TRUE(found.is_of_patches);
        EXPECT_FALSE(plain.is_of_patches);
        EXPECT_TRUE(found.y.is_contiguous(at::MemoryFormat::ChannelsLast));
        const double tolerance = autocast ? 1e-2 : 1e-5;
        EXPECT_EQ(found.y.scalar_type(), plain.y.scalar_type());
        EXPECT_LE(relative_error(found.y, plain.y), tolerance);
        EXPECT_LE(relative_error(found.x_gradient, plain.x_gradient), tolerance);
        EXPECT_LE(relative_error(found.weight_gradient, plain.weight_gradient), tolerance);
      }
    }
  }
}

TEST(ConvolutionOfSeparatePatches, OthersAreLeftToLibTorch) {
  const auto options = [] { return torch::nn::Conv2dOptions(2, 4, 2).stride(2); };
  for (const auto& [each, side] :
       std::vector<std::pair<torch::nn::Conv2dOptions, int64_t>>{{options(), 5},
                                                                 {options().padding(1), 4},
                                                                 {options().stride(1), 4},
                                                                 {options().dilation(2), 8}}) {
    Conv2d layer(each);
    use_channels_last(*layer);
    const at::Tensor x = at::randn({2, 2, side, side}).contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_FALSE(patch_pass(layer, x, Fused::kAlways, /*autocast=*/false).is_of_patches);
  }
}

/// `takes`: whether it is the fused operator that is expected.
at::Tensor trained(Conv2d layer, const at::Tensor& x, bool fused, bool autocast, bool takes) {
  layer->zero_grad();
  const at::Tensor y = forward_of(layer, x, fused, autocast, "FusedConvolution", takes);
  y.square().sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
  return at::cat({y.detach().to(at::kFloat).flatten(), layer->weight.grad().flatten()});
}

class ConvolutionLayer : public testing::TestWithParam<bool> {};

TEST_P(ConvolutionLayer, IsThatOfLibTorch) {
  const Bf16Products are_there(GetParam());
  at::manual_seed(4);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto options = [] { return torch::nn::Conv2dOptions(8, 64, 3).stride(2).padding(1); };
  enum class Takes { kAlways, kWidened, kNever };
  const std::pair<torch::nn::Conv2dOptions, Takes> cases[] = {
      {options().bias(false), Takes::kAlways},
      {options().bias(false).groups(4), Takes::kWidened},
      {options(), Takes::kNever},
      {options().bias(false).padding_mode(torch::kReflect), Takes::kNever}};
  for (const auto& [each, takes] : cases) {
    Conv2d layer(each);
    use_channels_last(*layer);
    for (const bool autocast : {false, true}) {
      const bool is_upcast = autocast && !GetParam();
      const bool is_fused = takes == Takes::kAlways || (takes == Takes::kWidened && is_upcast);
      EXPECT_LE(relative_error(trained(layer, x, /*fused=*/true, autocast, is_fused),
                               trained(layer, x, /*fused=*/false, autocast, false)),
                autocast ? 5e-3 : 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bf16, ConvolutionLayer, testing::Bool(),
                         [](const auto& info) { return info.param ? "Native" : "Widened"; });

}  // namespace
}  // namespace brim::nn
