// A convolution behind a batch norm and a ReLU, whose input is computed again in backward, against
// the two operators by themselves.
#include "framework/nn/fused/norm_convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <utility>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/nn/block.h"
#include "framework/nn/convolution.h"
#include "framework/nn/model.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

struct Layers {
  BatchNorm2d norm{nullptr};
  Conv2d convolution{nullptr};
};

Layers make_layers(const torch::nn::Conv2dOptions& options, at::ScalarType type, bool fused) {
  at::manual_seed(5);
  Layers layers = {BatchNorm2d(options.in_channels()), Conv2d(options)};
  const at::NoGradGuard no_grad;
  layers.norm->weight.uniform_(-1.5, 1.5);
  layers.norm->bias.uniform_(-0.5, 0.5);
  layers.norm->to(type);
  layers.convolution->to(type);
  use_channels_last(*layers.convolution);
  const Fused when = fused ? Fused::kAlways : Fused::kNever;
  use_fused(*layers.norm, when);
  use_fused(*layers.convolution, when);
  return layers;
}

at::Tensor images(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

/// What a pass leaves, by name.
using Results = std::vector<std::pair<const char*, at::Tensor>>;

struct Job {
  std::vector<int64_t> sizes;
  torch::nn::Conv2dOptions options;
};

/// Few output pixels, many, groups, steps, a bias.
std::vector<Job> jobs() {
  const auto options = [](int64_t inputs, int64_t outputs, int64_t kernel) {
    return torch::nn::Conv2dOptions(inputs, outputs, kernel).padding(kernel / 2).bias(false);
  };
  return {{{2, 8, 3, 3}, options(8, 64, 3)},
          {{3, 8, 9, 7}, options(8, 16, 3).stride(2)},
          {{4, 16, 6, 6}, options(16, 8, 1)},
          {{2, 8, 5, 5}, options(8, 32, 3).groups(4).dilation(2)},
          {{2, 8, 3, 3}, options(8, 64, 3).bias(true)}};
}

Results pass(const Job& job, at::ScalarType type, bool after, bool autocast = false,
             bool autocasts_backward = false) {
  Layers layers = make_layers(job.options, autocast ? at::kFloat : type, /*fused=*/true);
  at::manual_seed(9);
  const at::Tensor x = images(job.sizes, type).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(c10::kCPU, {.compute = at::kBFloat16, .autocast = autocast});
    y = after ? layers.convolution->forward_after(layers.norm, x)
              : layers.convolution->forward(layers.norm->forward_relu(x));
  }
  const at::Tensor g = at::randn(y.sizes(), at::kDouble).to(y.scalar_type());
  const amp::Autocast scope(c10::kCPU, {.compute = at::kBFloat16, .autocast = autocasts_backward});
  y.backward(g);
  return {{"y", y.detach()},
          {"x", x.grad()},
          {"norm's weight", layers.norm->weight.grad()},
          {"norm's bias", layers.norm->bias.grad()},
          {"weight", layers.convolution->weight.grad()},
          {"running mean", layers.norm->running_mean},
          {"running variance", layers.norm->running_var},
          {"batches", layers.norm->num_batches_tracked}};
}

void expect_same(const Results& found, const Results& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].second.equal(expected[i].second)) << found[i].first;
  }
}

TEST(FusedNormConvolution, GivesWhatTheTwoGiveToTheBit) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(job.sizes) << job.options.bias());
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      expect_same(pass(job, type, /*after=*/true), pass(job, type, /*after=*/false));
    }
    for (const bool are_there : {true, false}) {
      const Bf16Products assumed(are_there);
      expect_same(pass(job, at::kBFloat16, true, /*autocast=*/true),
                  pass(job, at::kBFloat16, false, /*autocast=*/true));
    }
  }
}

TEST(FusedNormConvolution, AutocastAroundBackwardChangesNothing) {
  const Job job = {{2, 8, 2, 2},  // few enough pixels for a product in bf16 as well
                   torch::nn::Conv2dOptions(8, 64, 3).padding(1).bias(false)};
  for (const bool are_there : {true, false}) {
    const Bf16Products assumed(are_there);
    for (const bool after : {true, false}) {
      expect_same(pass(job, at::kFloat, after, false, /*autocasts_backward=*/true),
                  pass(job, at::kFloat, after));
    }
  }
}

TEST(FusedNormConvolution, GradientIsThatOfDifferences) {
  Layers layers = make_layers(torch::nn::Conv2dOptions(3, 8, 3).padding(1).bias(false), at::kDouble,
                              /*fused=*/true);
  const at::Tensor x = images({2, 3, 2, 2}, at::kDouble).requires_grad_();
  const at::Tensor g = images({2, 8, 2, 2}, at::kDouble);
  const auto y = [&] { return layers.convolution->forward_after(layers.norm, x); };
  y().backward(g);
  for (const at::Tensor& leaf :
       {x, layers.norm->weight, layers.norm->bias, layers.convolution->weight}) {
    EXPECT_LE(relative_error(leaf.grad(), numerical_gradient(y, g, leaf.detach())), 1e-6);
  }
}

bool is_one(const at::Tensor& y) {
  return y.grad_fn()->name().find("FusedNormConvolution") != std::string::npos;
}

TEST(FusedNormConvolution, IsLeftWhereItIsNotWanted) {
  const Job job = jobs()[0];
  Layers layers = make_layers(job.options, at::kFloat, /*fused=*/true);
  const auto y = [&](const at::Tensor& x) {
    return layers.convolution->forward_after(layers.norm, x);
  };
  const at::Tensor x = images(job.sizes, at::kFloat);
  EXPECT_TRUE(is_one(y(x)));
  EXPECT_FALSE(is_one(y(at::randn(job.sizes))));  // not channels_last
  layers.norm->synchronize([](const at::Tensor&) {});
  EXPECT_FALSE(is_one(y(x)));
  layers.norm->synchronize({});
  EXPECT_TRUE(is_one(y(x)));
  use_fused(*layers.norm, Fused::kNever);
  EXPECT_FALSE(is_one(y(x)));
  use_fused(*layers.norm, Fused::kAlways);
  layers.norm->eval();
  EXPECT_FALSE(is_one(y(x)));
  Layers biased = make_layers(jobs().back().options, at::kFloat, /*fused=*/true);
  EXPECT_FALSE(is_one(biased.convolution->forward_after(biased.norm, x)));
}

TEST(FusedNormConvolution, FrozenParametersGetNoGradient) {
  Layers layers = make_layers(jobs()[1].options, at::kFloat, /*fused=*/true);
  layers.norm->weight.set_requires_grad(false);
  layers.norm->bias.set_requires_grad(false);
  const at::Tensor x = images(jobs()[1].sizes, at::kFloat);
  layers.convolution->forward_after(layers.norm, x).sum().backward();
  EXPECT_TRUE(layers.convolution->weight.grad().defined());
  EXPECT_FALSE(layers.norm->weight.grad().defined());
  layers.norm->weight.set_requires_grad(true);
  layers.convolution->weight.set_requires_grad(false);
  layers.convolution->weight.mutable_grad().reset();
  layers.convolution->forward_after(layers.norm, x).sum().backward();
  EXPECT_TRUE(layers.norm->weight.grad().defined());
  EXPECT_FALSE(layers.convolution->weight.grad().defined());
}

TEST(FusedNormConvolution, RefusesWhatTheNormDoes) {
  Layers layers = make_layers(jobs()[0].options, at::kFloat, /*fused=*/true);
  EXPECT_THROW(layers.convolution->forward_after(layers.norm, images({1, 8, 1, 1}, at::kFloat)),
               Error);
  EXPECT_EQ(layers.norm->num_batches_tracked.item<int64_t>(), 0);
  const at::Tensor x = images(jobs()[0].sizes, at::kFloat).requires_grad_();
  const at::Tensor y = layers.convolution->forward_after(layers.norm, x);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
}

class NormedBlock : public Block {
 public:
  explicit NormedBlock(Layers layers) : layers_(std::move(layers)) {
    register_module("norm", layers_.norm);
    register_module("convolution", layers_.convolution);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return layers_.convolution->forward_after(layers_.norm, x);
  }

 private:
  Layers layers_;
};

TEST(FusedNormConvolution, ARecomputedBlockCountsABatchOnce) {
  const auto result = [](bool is_recomputed) {
    const Layers layers = make_layers(jobs()[1].options, at::kFloat, /*fused=*/true);
    NormedBlock block(layers);
    block.set_recomputed(is_recomputed);
    at::manual_seed(9);
    const at::Tensor x = images(jobs()[1].sizes, at::kFloat).requires_grad_();
    block.run(x).square().sum().backward();
    return Results{{"x", x.grad()},
                   {"weight", layers.convolution->weight.grad()},
                   {"running mean", layers.norm->running_mean},
                   {"batches", layers.norm->num_batches_tracked}};
  };
  expect_same(result(true), result(false));
}

/// The norm has no node of its own, which would keep its result.
TEST(FusedNormConvolution, OnlyLeavesLieBehindIt) {
  Layers layers = make_layers(jobs()[2].options, at::kFloat, /*fused=*/true);
  const at::Tensor x = images(jobs()[2].sizes, at::kFloat).requires_grad_();
  const at::Tensor y = layers.convolution->forward_after(layers.norm, x);
  for (const auto& edge : y.grad_fn()->next_edges()) {
    if (edge.function == nullptr) continue;
    EXPECT_EQ(edge.function->name(), "torch::autograd::AccumulateGrad");
  }
}

}  // namespace
}  // namespace brim::nn
