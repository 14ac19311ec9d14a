// Outputs whose rows lie further apart, against LibTorch's: values and gradients, whatever the
// gradient's own layout.
#include "framework/nn/fused/aligned_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

constexpr int64_t kOutputs = 71;  // of 8 bytes: rows begin on 80 values
constexpr int64_t kStride = 80;

/// [rows, kOutputs] in rows of kStride, of which the rest is not-a-number.
at::Tensor apart(const at::Tensor& values) {
  const at::Tensor wide = at::full({values.size(0), kStride}, NAN, values.options());
  const at::Tensor result = wide.narrow(1, 0, kOutputs);
  result.copy_(values);
  return result;
}

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gradient) {
  const at::Tensor in = x.detach().clone().requires_grad_();
  const at::Tensor of = weight.detach().clone().requires_grad_();
  const at::Tensor y = aligned_linear(in, of);
  EXPECT_EQ(y.stride(-2), kStride);
  y.backward(gradient);
  const at::Tensor x_leaf = x.detach().clone().requires_grad_();
  const at::Tensor weight_leaf = weight.detach().clone().requires_grad_();
  const at::Tensor expected = at::linear(x_leaf, weight_leaf);
  expected.backward(gradient.detach().clone());
  EXPECT_LE(relative_error(y, expected), 1e-12);
  EXPECT_LE(relative_error(in.grad(), x_leaf.grad()), 1e-12);
  EXPECT_LE(relative_error(of.grad(), weight_leaf.grad()), 1e-12);
}

TEST(AlignedLinear, IsLibTorchs) {
  at::manual_seed(1);
  const at::Tensor weight = at::randn({kOutputs, 24}, at::kDouble);
  check(at::randn({7, 24}, at::kDouble), weight, at::randn({7, kOutputs}, at::kDouble));
  check(at::randn({7, 24}, at::kDouble), weight, apart(at::randn({7, kOutputs}, at::kDouble)));
  check(at::randn({2, 3, 24}, at::kDouble), weight, at::randn({2, 3, kOutputs}, at::kDouble));
}

TEST(AlignedLinear, LeavesWhatLiesBesideAGradient) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({5, 24}, at::kDouble).requires_grad_();
  const at::Tensor weight = at::randn({kOutputs, 24}, at::kDouble).requires_grad_();
  const at::Tensor other = at::randn({5, kStride - kOutputs}, at::kDouble).requires_grad_();
  const at::Tensor gradient = at::randn({5, kStride}, at::kDouble);
  const at::Tensor kept = gradient.clone();
  at::cat({aligned_linear(x, weight), other}, 1).backward(gradient);
  EXPECT_TRUE(gradient.equal(kept));
  EXPECT_TRUE(other.grad().equal(kept.narrow(1, kOutputs, kStride - kOutputs)));
}

TEST(AlignedLinear, ItsGradientHasNone) {
  const at::Tensor weight = at::randn({kOutputs, 24}).requires_grad_();
  const at::Tensor y = aligned_linear(at::randn({3, 24}).requires_grad_(), weight);
  EXPECT_THROW(y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST(AlignedLinear, IsForGpus) {
  EXPECT_FALSE(has_aligned_linear(at::randn({512, 8}), at::randn({50257, 8}), {}));
}

}  // namespace
}  // namespace brim::nn
