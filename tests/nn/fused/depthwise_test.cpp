// Depthwise convolutions against LibTorch's: values and gradients.
#include "framework/nn/fused/depthwise.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/nn/convolution.h"
#include "framework/nn/flops.h"
#include "framework/nn/fused/loops/depthwise.h"
#include "framework/nn/fused/operator.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

struct DepthwisePass {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;
};

DepthwisePass depthwise_pass(bool fused, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, const ConvolutionSteps& steps,
                             const at::Tensor& gradient) {
  const auto leaf = [](const at::Tensor& t) {
    return t.defined() ? t.detach().clone().requires_grad_() : t;
  };
  const at::Tensor input = leaf(x), kernel = leaf(weight), added = leaf(bias);
  const at::Tensor y = fused ? fused_depthwise_convolution(input, kernel, added, steps)
                             : at::conv2d(input, kernel, added, steps.stride, steps.padding,
                                          steps.dilation, x.size(1));
  y.backward(gradient);
  return {y.detach(), input.grad(), kernel.grad(), bias.defined() ? added.grad() : at::Tensor()};
}

void expect_alike(const DepthwisePass& found, const DepthwisePass& exact, double tolerance,
                  double of_parameters) {
  EXPECT_EQ(found.y.sizes(), exact.y.sizes());
  EXPECT_TRUE(found.y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(relative_error(found.y, exact.y), tolerance);
  EXPECT_LE(relative_error(found.x_gradient, exact.x_gradient), tolerance);
  EXPECT_EQ(found.weight_gradient.sizes(), exact.weight_gradient.sizes());
  EXPECT_LE(relative_error(found.weight_gradient, exact.weight_gradient), of_parameters);
  ASSERT_EQ(found.bias_gradient.defined(), exact.bias_gradient.defined());
  if (exact.bias_gradient.defined()) {
    EXPECT_LE(relative_error(found.bias_gradient, exact.bias_gradient), of_parameters);
  }
}

at::Tensor images(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
}

/// f(x, weight, bias, steps, gradient) in float64: each width of a kernel; one channel, fewer than
/// a vector has, some vectors and a part; images smaller than the kernel, rows of a tile and its
/// neighbours; each stride, padding on neither side or one; more images than there are sets of
/// sums.
void for_each_depthwise(
    const std::function<void(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const ConvolutionSteps&, const at::Tensor&)>& f) {
  struct Case {
    std::vector<int64_t> x;
    std::array<int64_t, 2> kernel;
    ConvolutionSteps steps;
  };
  const Case cases[] = {
      {{2, 19, 9, 8}, {3, 3}, {.padding = {1, 1}}},
      {{2, 16, 7, 7}, {7, 7}, {.padding = {3, 3}}},
      {{1, 37, 3, 2}, {7, 7}, {.padding = {3, 3}}},
      {{3, 5, 14, 15}, {5, 5}, {.stride = {2, 2}, .padding = {2, 2}}},
      {{2, 8, 13, 12}, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{2, 3, 11, 23}, {3, 5}, {.stride = {3, 4}, .padding = {0, 2}}},
      {{1, 32, 8, 9}, {1, 3}, {.stride = {4, 1}}},
      {{2, 2, 6, 10}, {2, 7}, {.stride = {3, 5}, .padding = {1, 6}}},
      {{19, 4, 5, 5}, {3, 3}, {.padding = {1, 1}}},
  };
  at::manual_seed(12);
  for (const Case& c : cases) {
    for (const bool has_bias : {true, false}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(c.x) << at::IntArrayRef(c.kernel)
                                      << (has_bias ? " with a bias" : ""));
      const int64_t channels = c.x[1];
      const at::Tensor x = images(c.x);
      const at::Tensor weight = at::randn({channels, 1, c.kernel[0], c.kernel[1]}, at::kDouble);
      const at::Tensor bias = has_bias ? at::randn({channels}, at::kDouble) : at::Tensor();
      ASSERT_TRUE(has_fused_depthwise_convolution(x, weight, bias, c.steps, channels));
      const at::Tensor y =
          at::conv2d(x, weight, {}, c.steps.stride, c.steps.padding, c.steps.dilation, channels);
      f(x, weight, bias, c.steps, images(y.sizes()));
    }
  }
}

TEST(DepthwiseConvolution, IsLibTorchsInFloat64) {
  for_each_depthwise([](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const ConvolutionSteps& steps, const at::Tensor& g) {
    expect_alike(depthwise_pass(true, x, weight, bias, steps, g),
                 depthwise_pass(false, x, weight, bias, steps, g), 1e-13, 1e-13);
  });
}

TEST(DepthwiseConvolution, IsExactToEachFormatsRounding) {
  for_each_depthwise([](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const ConvolutionSteps& steps, const at::Tensor& g) {
    const auto as = [](const at::Tensor& t, at::ScalarType type) {
      return t.defined() ? t.to(type) : t;
    };
    for (const auto& [type, tolerance] : {std::pair(at::kFloat, 1e-6), {at::kBFloat16, 5e-3}}) {
      const auto wide = [&](const at::Tensor& t, at::ScalarType of) {
        return as(as(t, of), at::kDouble);
      };
      const DepthwisePass found = depthwise_pass(true, as(x, type), as(weight, at::kFloat),
                                                 as(bias, at::kFloat), steps, as(g, type));
      EXPECT_EQ(found.y.scalar_type(), type);
      EXPECT_EQ(found.x_gradient.scalar_type(), type);
      EXPECT_EQ(found.weight_gradient.scalar_type(), at::kFloat);
      expect_alike(found,
                   depthwise_pass(false, wide(x, type), wide(weight, at::kFloat),
                                  wide(bias, at::kFloat), steps, wide(g, type)),
                   tolerance, 1e-6);
    }
  });
}

class DepthwiseLoops : public testing::TestWithParam<loops::Isa> {};

/// 11 channels of one image, a vector after the other.
TEST_P(DepthwiseLoops, AgreeWithLibTorch) {
  const loops::DepthwiseLoops<float> loop = loops::depthwise_table(GetParam()).of<float>();
  at::manual_seed(13);
  constexpr int64_t kChannels = 11;
  for (const int64_t kernel : {3, 5, 7}) {
    SCOPED_TRACE(kernel);
    const auto as_float = [](const at::Tensor& t) {
      return t.to(at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor x = as_float(images({1, kChannels, 9, 10}));
    const at::Tensor weight = at::randn({kChannels, 1, kernel, kernel});
    const at::Tensor taps = weight.flatten(1).t().contiguous(), bias = at::randn({kChannels});
    const at::Tensor expected = at::conv2d(x, weight, bias, {1, 2}, 1, 1, kChannels);
    const at::Tensor y = at::empty_like(expected), g = as_float(at::randn_like(expected));
    const at::Tensor sums = at::ones({kernel * kernel + 1, kChannels});
    loops::DepthwiseShape shape = {
        .channels = kChannels,
        .count = 0,
        .height = {9, expected.size(2), kernel, 1, 1},
        .width = {10, expected.size(3), kernel, 2, 1},
    };
    std::vector<float> scratch(static_cast<size_t>(loop.scratch_values(shape)));
    for (int64_t c = 0; c < kChannels; c += loop.lanes) {
      shape.count = std::min(loop.lanes, kChannels - c);
      loop.convolve(shape, x.const_data_ptr<float>() + c, taps.const_data_ptr<float>() + c,
                    bias.const_data_ptr<float>() + c, y.mutable_data_ptr<float>() + c,
                    scratch.data());
      loop.add_weight_gradients(shape, g.const_data_ptr<float>() + c, x.const_data_ptr<float>() + c,
                                sums.mutable_data_ptr<float>() + c, scratch.data());
    }
    EXPECT_LE(relative_error(y, expected), 1e-6);
    const auto [none, of_weight, of_bias] =
        at::convolution_backward(g, x, weight, at::IntArrayRef({kChannels}), {1, 2}, {1, 1}, {1, 1},
                                 false, {0, 0}, kChannels, {false, true, true});
    EXPECT_LE(relative_error(sums.narrow(0, 0, kernel * kernel) - 1, of_weight.flatten(1).t()),
              1e-5);
    EXPECT_LE(relative_error(sums[kernel * kernel] - 1, of_bias), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, DepthwiseLoops, testing::ValuesIn(available_isas()));

TEST(DepthwiseConvolution, IsTheSameOnAnyNumberOfThreads) {
  at::manual_seed(4);
  const at::Tensor x = images({5, 40, 9, 9}).to(at::kBFloat16), weight = at::randn({40, 1, 3, 3});
  const at::Tensor bias = at::randn({40}), g = images({5, 40, 9, 9}).to(at::kBFloat16);
  const ConvolutionSteps steps = {.padding = {1, 1}};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const DepthwisePass one = depthwise_pass(true, x, weight, bias, steps, g);
  at::set_num_threads(4);
  const DepthwisePass four = depthwise_pass(true, x, weight, bias, steps, g);
  at::set_num_threads(before);
  EXPECT_TRUE(four.y.equal(one.y));
  EXPECT_TRUE(four.x_gradient.equal(one.x_gradient));
  EXPECT_TRUE(four.weight_gradient.equal(one.weight_gradient));
  EXPECT_TRUE(four.bias_gradient.equal(one.bias_gradient));
}

TEST(DepthwiseConvolution, ALayerTakesIt) {
  at::manual_seed(5);
  Conv2d layer(torch::nn::Conv2dOptions(24, 24, 3).padding(1).stride(2).groups(24));
  const at::Tensor x = images({2, 24, 9, 9}).to(at::kFloat);
  for (const bool autocast : {true, false}) {
    const auto trained = [&](bool fused) {
      layer->zero_grad();
      const at::Tensor in = x.clone().requires_grad_();
      const at::Tensor y =
          forward_of(layer, in, fused, autocast, "FusedDepthwiseConvolution", fused);
      y.square().sum().backward();
      return DepthwisePass{y.detach(), in.grad(), layer->weight.grad().clone(),
                           layer->bias.grad().clone()};
    };
    expect_alike(trained(true), trained(false), autocast ? 1e-2 : 1e-6, autocast ? 1e-2 : 1e-6);
  }
}

TEST(DepthwiseConvolution, FrozenParametersAreNoHindrance) {
  at::manual_seed(6);
  const at::Tensor x = images({1, 4, 6, 6}), weight = at::randn({4, 1, 3, 3}, at::kDouble);
  const at::Tensor bias = at::randn({4}, at::kDouble), g = images({1, 4, 4, 4});
  const DepthwisePass all = depthwise_pass(true, x, weight, bias, {}, g);
  const at::Tensor learned = bias.clone().requires_grad_(), input = x.clone().requires_grad_();
  fused_depthwise_convolution(x, weight, learned, {}).backward(g);
  EXPECT_TRUE(learned.grad().equal(all.bias_gradient));
  fused_depthwise_convolution(input, weight, bias, {}).backward(g);
  EXPECT_TRUE(input.grad().equal(all.x_gradient));
}

TEST(DepthwiseConvolution, ItsGradientHasNone) {
  const at::Tensor x = images({1, 4, 6, 6}).requires_grad_();
  const at::Tensor y = fused_depthwise_convolution(x, at::randn({4, 1, 3, 3}, at::kDouble), {}, {});
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST(DepthwiseConvolution, OthersAreLeftToLibTorch) {
  const at::Tensor x = images({1, 4, 6, 6}).to(at::kFloat), weight = at::randn({4, 1, 3, 3}), none;
  const auto has = [&](const at::Tensor& in, const at::Tensor& of,
                       const ConvolutionSteps& steps = {}, int64_t groups = 4) {
    return has_fused_depthwise_convolution(in, of, none, steps, groups);
  };
  EXPECT_TRUE(has(x, weight));
  EXPECT_FALSE(has(x.contiguous(), weight));
  EXPECT_FALSE(has(x, at::randn({4, 2, 3, 3}), {}, 2));
  EXPECT_FALSE(has(x, at::randn({8, 1, 3, 3})));  // two outputs a channel
  EXPECT_FALSE(has(x, at::randn({4, 1, 3, 4})));
  EXPECT_FALSE(has(x, at::randn({4, 1, 9, 3}), {.padding = {4, 1}}));
  EXPECT_FALSE(has(x, at::randn({4, 1, 7, 7})));  // of which the image has none
  EXPECT_FALSE(has(x, weight, {.dilation = {2, 1}}));
  EXPECT_FALSE(has(x, weight, {.padding = {0, 3}}));
  EXPECT_FALSE(has(x, weight.to(at::kBFloat16)));
  EXPECT_FALSE(has(x.narrow(0, 0, 0), weight));
  EXPECT_FALSE(has_fused_depthwise_convolution(x, weight, at::randn({4}, at::kDouble), {}, 4));
}

TEST(DepthwiseConvolution, ShapesAreKnownWithoutComputing) {
  const at::Tensor x = images({2, 4, 9, 8}).to(at::kMeta);
  const at::Tensor weight = at::randn({4, 1, 3, 5}).to(at::kMeta);
  using Forward = at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&,
                             at::IntArrayRef, at::IntArrayRef);
  const at::Tensor y = find_operator<Forward>("brim::depthwise_convolution")
                           .call(x, weight, std::nullopt, {2, 1}, {1, 2});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 4, 5, 8}));
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef,
      std::array<bool, 3>);
  const auto [of_x, of_weight, of_bias] =
      find_operator<Backward>("brim::depthwise_convolution_backward")
          .call(y, x, weight, {2, 1}, {1, 2}, {true, false, true});
  EXPECT_EQ(of_x.sizes(), x.sizes());
  EXPECT_FALSE(of_weight.defined());
  EXPECT_EQ(of_bias.sizes(), at::IntArrayRef({4}));
}

TEST(DepthwiseConvolution, ItsProductsAreCountedAsLibTorchs) {
  const at::Tensor x = images({2, 4, 9, 8}), weight = at::randn({4, 1, 3, 3});
  const at::Tensor y = at::empty({2, 4, 5, 8});
  const auto flops = [](const char* name, const std::vector<c10::IValue>& inputs) {
    return product_flops(name)(c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  };
  const std::vector<int64_t> stride = {2, 1}, padding = {1, 1};
  EXPECT_EQ(flops("brim::depthwise_convolution", {x, weight, c10::IValue(), stride, padding}),
            2 * y.numel() * 9);
  const c10::List<bool> wanted({true, true, true});
  EXPECT_EQ(flops("brim::depthwise_convolution_backward", {y, x, weight, stride, padding, wanted}),
            2 * 2 * y.numel() * 9);
}

}  // namespace
}  // namespace brim::nn
