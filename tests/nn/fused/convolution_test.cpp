// Convolutions of few pixels as products of matrices, against LibTorch's: values and gradients.
#include "framework/nn/fused/convolution.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/nn/convolution.h"
#include "framework/nn/model.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

struct Pass {
  at::Tensor y, x_gradient, weight_gradient;
};

Pass pass(bool fused, const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
          const at::Tensor& gradient) {
  const auto leaf = [](const at::Tensor& t) {
    return t.detach().clone(at::MemoryFormat::ChannelsLast).requires_grad_();
  };
  const at::Tensor input = leaf(x), kernel = leaf(weight);
  const at::Tensor y =
      fused ? fused_convolution(input, kernel, steps)
            : at::conv2d(input, kernel, {}, steps.stride, steps.padding, steps.dilation);
  y.backward(gradient);
  return {y.detach(), input.grad(), kernel.grad()};
}

void expect_close(const Pass& found, const Pass& exact, double tolerance) {
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
    ASSERT_TRUE(has_fused_convolution(x, weight, c.steps));
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
      const Pass found = pass(true, rounded(x), rounded(weight), steps, rounded(g));
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
    return fused_convolution(x, weight, {.stride = {2, 2}, .padding = {1, 1}});
  };
  y().backward(g);
  EXPECT_LE(relative_error(x.grad(), numerical_gradient(y, g, x.detach())), 1e-7);
  EXPECT_LE(relative_error(weight.grad(), numerical_gradient(y, g, weight.detach())), 1e-7);
}

TEST(FusedConvolution, GradientsLieAsTheWeightsDo) {
  for_each_case([](const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                   const at::Tensor& g) {
    const Pass found = pass(true, x, weight, steps, g);
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
  const Pass one = pass(true, x, weight, steps, g);
  at::set_num_threads(3);
  expect_close(pass(true, x, weight, steps, g), one, 1e-6);
  at::set_num_threads(before);
}

TEST(FusedConvolution, OthersAreLeftToLibTorch) {
  const auto images = [](at::IntArrayRef sizes) {
    return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const ConvolutionSteps steps = {.padding = {1, 1}};
  const at::Tensor weight = images({64, 4, 3, 3});
  const auto bf16 = [](const at::Tensor& t) { return t.to(at::kBFloat16); };
  EXPECT_TRUE(has_fused_convolution(images({2, 4, 8, 8}), weight, steps));
  EXPECT_FALSE(has_fused_convolution(images({2, 4, 9, 8}), weight, steps));  // more pixels
  EXPECT_TRUE(has_fused_convolution(bf16(images({1, 4, 4, 4})), bf16(weight), steps));
  EXPECT_FALSE(has_fused_convolution(bf16(images({1, 4, 5, 4})), bf16(weight), steps));
  EXPECT_FALSE(has_fused_convolution(bf16(images({1, 4, 4, 4})), weight, steps));  // two formats
  EXPECT_FALSE(has_fused_convolution(at::randn({1, 4, 4, 4}), weight, steps));     // another layout
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 4, 4}), at::randn({64, 4, 3, 3}), steps));
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 4, 4}).to(at::kHalf), weight, steps));
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 1, 1}), weight, {}));  // larger than the image
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 2, 2}), weight, {.stride = {2, 2}}));
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 3, 3}), weight, {.stride = {0, 0}}));
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 3, 3}), weight, {.padding = {-1, 0}}));
  EXPECT_FALSE(has_fused_convolution(images({1, 4, 3, 3}), weight, {.dilation = {0, 1}}));
  EXPECT_FALSE(has_fused_convolution(images({0, 4, 4, 4}), weight, steps));
}

at::Tensor trained(Conv2d layer, const at::Tensor& x, bool fused, bool autocast) {
  use_fused(*layer, fused);
  layer->zero_grad();
  at::Tensor y;
  {
    const amp::Autocast scope(
        c10::kCPU, {.compute = autocast ? at::kBFloat16 : at::kFloat, .autocast = autocast});
    y = layer->forward(x);
  }
  EXPECT_EQ(y.scalar_type(), autocast ? at::kBFloat16 : at::kFloat);
  y.square().sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
  return at::cat({y.detach().to(at::kFloat).flatten(), layer->weight.grad().flatten()});
}

TEST(FusedConvolution, ALayerIsThatOfLibTorch) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto options = [](int64_t outputs) {
    return torch::nn::Conv2dOptions(8, outputs, 3).stride(2).padding(1);
  };
  for (const auto& each : {options(64).bias(false), options(64), options(64).bias(false).groups(4),
                           options(64).bias(false).padding_mode(torch::kReflect)}) {
    Conv2d layer(each);
    use_channels_last(*layer);
    for (const bool autocast : {false, true}) {
      EXPECT_LE(relative_error(trained(layer, x, /*fused=*/true, autocast),
                               trained(layer, x, /*fused=*/false, autocast)),
                autocast ? 5e-3 : 1e-6);
    }
  }
}

}  // namespace
}  // namespace brim::nn
