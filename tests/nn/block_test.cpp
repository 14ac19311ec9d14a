// A recomputed block learns what a kept one does, to the bit, and keeps less.
#include "framework/nn/block.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/model.h"

namespace brim::nn {
namespace {

/// With all that a second pass must not do twice: running statistics and dropout.
class ConvBlock : public Block {
 public:
  ConvBlock() {
    conv_ =
        register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
    norm_ = register_module("norm", BatchNorm2d(4));
  }
  at::Tensor forward(const at::Tensor& x) override {
    ++passes;
    return at::dropout(norm_->forward_add_relu(conv_->forward(x), x), 0.5, is_training()).add_(x);
  }
  int passes = 0;

 private:
  torch::nn::Conv2d conv_{nullptr};
  BatchNorm2d norm_{nullptr};
};

class Net : public torch::nn::Module {
 public:
  Net() {
    for (const char* name : {"first", "second"}) {
      blocks.push_back(register_module(name, std::make_shared<ConvBlock>()));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : blocks) x = block->run(x);
    return x.square().mean();
  }
  std::vector<std::shared_ptr<ConvBlock>> blocks;
};

struct Learned {
  std::vector<at::Tensor> gradients, buffers;
  at::Tensor input_gradient, next_random;
};

/// Two passes, whose gradients add up.
Learned learn(const std::vector<std::string>& patterns, bool autocast, bool fused,
              Net* net_out = nullptr) {
  at::manual_seed(3);
  Net net;
  use_channels_last(net);
  use_fused(net, fused ? Fused::kAlways : Fused::kNever);
  recompute(net, patterns);
  const at::Tensor x =
      at::rand({5, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const amp::Precision precision = {.compute = at::kBFloat16, .autocast = autocast};
  for (int pass = 0; pass < 2; ++pass) {
    at::Tensor loss;
    {
      const amp::Autocast scope(c10::kCPU, precision);
      loss = net.forward(x);
    }
    loss.backward();
  }
  Learned learned;
  for (const auto& parameter : net.parameters()) learned.gradients.push_back(parameter.grad());
  learned.buffers = net.buffers();
  learned.input_gradient = x.grad();
  learned.next_random = at::rand({4});
  if (net_out != nullptr) net_out->blocks = net.blocks;
  return learned;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(Recompute, GradientsBuffersAndRandomNumbersAreTheSameToTheBit) {
  for (const bool autocast : {false, true}) {
    for (const bool fused : {false, true}) {
      Net kept, twice;
      const Learned expected = learn({}, autocast, fused, &kept);
      const Learned found = learn({"first", "sec*"}, autocast, fused, &twice);
      expect_same(found.gradients, expected.gradients);
      expect_same(found.buffers, expected.buffers);
      EXPECT_TRUE(at::equal(found.input_gradient, expected.input_gradient));
      EXPECT_TRUE(at::equal(found.next_random, expected.next_random));
      EXPECT_EQ(kept.blocks[0]->passes, 2);
      EXPECT_EQ(twice.blocks[0]->passes, 4);
    }
  }
}

TEST(Recompute, EvaluationPassesOnce) {
  Net net;
  recompute(net, {"*"});
  net.eval();
  net.forward(at::rand({2, 4, 6, 6}));
  EXPECT_EQ(net.blocks[0]->passes, 1);
}

TEST(Recompute, APatternThatMatchesNothingIsRefused) {
  Net net;
  try {
    recompute(net, {"first", "third.*"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_NE(std::string(error.what()).find("third.*"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("first, second"), std::string::npos);
  }
}

}  // namespace
}  // namespace brim::nn
