// A parameter that still travels is filled before whatever operator reads it first.
#include "framework/distributed/before_use.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>

#include "framework/amp/autocast.h"
#include "framework/nn/linear.h"
#include "tests/nn/fused/check.h"

namespace brim::distributed {
namespace {

/// Sets tensors of one storage to a value when they are first used, and counts that.
class FillOnUse {
 public:
  FillOnUse(const at::Tensor& tensor, double value) : tensor_(tensor.detach()), value_(value) {}

  void operator()(const at::Tensor& used) {
    if (fills > 0 || !used.has_storage() || !used.is_alias_of(tensor_)) return;
    ++fills;
    const at::NoGradGuard no_grad;
    tensor_.fill_(value_);
  }

  int fills = 0;

 private:
  at::Tensor tensor_;
  double value_;
};

/// What `forward` gives with `parameter` full of 2 from the start, and filled when it is first
/// used.
template <class Forward>
void expect_same(const at::Tensor& parameter, const Forward& forward) {
  const at::NoGradGuard no_grad;
  parameter.fill_(2);
  const at::Tensor expected = forward();
  parameter.fill_(-5);
  ASSERT_FALSE(at::equal(forward(), expected)) << "the parameter has no part in this";
  FillOnUse fill(parameter, 2);
  const BeforeUse before([&](const at::Tensor& used) { fill(used); });
  EXPECT_TRUE(at::equal(forward(), expected));
  EXPECT_EQ(fill.fills, 1);
}

TEST(BeforeUse, LayersOfEveryKind) {
  const at::Tensor images = at::rand({2, 3, 8, 8});
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
  expect_same(conv->weight, [&] { return conv(images); });
  expect_same(conv->bias, [&] { return conv(images); });
  torch::nn::BatchNorm2d norm(3);
  expect_same(norm->weight, [&] { return norm(images); });
  const at::Tensor weight = at::rand({5, 8});
  expect_same(weight, [&] { return at::linear(images, weight); });
  torch::nn::Embedding embedding(4, 3);
  expect_same(embedding->weight, [&] { return embedding(at::arange(4)); });
  torch::nn::LSTM lstm(8, 2);  // takes its parameters as a list
  expect_same(lstm->all_weights()[0], [&] { return std::get<0>(lstm(images[0])); });
}

TEST(BeforeUse, CastsAndViewsReadToo) {
  const at::Tensor x = at::rand({3, 8});
  const at::Tensor weight = at::rand({5, 8});
  const amp::Precision bf16 = {.compute = at::kBFloat16, .autocast = true};
  expect_same(weight, [&] {
    const amp::Autocast autocast(c10::kCPU, bf16);
    return at::linear(x, weight);
  });
  for (const bool are_there : {true, false}) {
    const nn::Bf16Products assumed(are_there);
    expect_same(weight, [&] {
      const amp::Autocast autocast(c10::kCPU, bf16);
      return nn::linear(x, weight, {}, /*fused=*/true);
    });
  }
  const at::Tensor row = weight[1];  // from before
  expect_same(weight, [&] { return row + 1; });
}

TEST(BeforeUse, OnlyWhileItLives) {
  int calls = 0;
  {
    const BeforeUse before([&](const at::Tensor&) { ++calls; });
  }
  at::ones({2}).add_(1);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace brim::distributed
