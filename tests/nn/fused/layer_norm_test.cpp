// Fused addition and layer norm against LibTorch's operators: values and gradients.
#include "framework/nn/fused/layer_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "framework/amp/autocast.h"
#include "framework/nn/fused/loops/layer_norm.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

/// What goes in, and the gradients of what comes out.
struct LayerNormCase {
  at::Tensor x, branch, weight, bias, of_norm, of_sum;
};

LayerNormCase make_case(at::IntArrayRef sizes, at::ScalarType x, at::ScalarType norm) {
  const auto values = [&](at::ScalarType type) { return at::randn(sizes, at::kDouble).to(type); };
  const at::ScalarType wide = x == at::kDouble ? at::kDouble : at::kFloat;
  const auto vector = [&] { return at::randn({sizes.back()}, at::kDouble).to(wide); };
  return {(values(at::kDouble) * 2 + 1).to(x),
          values(norm),
          vector(),
          vector(),
          values(norm),
          values(x)};
}

struct LayerNormPass {
  at::Tensor sum, norm, x_gradient, branch_gradient, weight_gradient, bias_gradient;
  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> tensors = {norm, x_gradient, weight_gradient, bias_gradient};
    if (branch_gradient.defined()) tensors.insert(tensors.end(), {sum, branch_gradient});
    return tensors;
  }
};

/// By the fused operator, or by LibTorch's in float64.
LayerNormPass pass(bool fused, const LayerNormCase& given, bool has_branch) {
  const auto leaf = [&](const at::Tensor& t) {
    return (fused ? t.detach().clone() : t.detach().to(at::kDouble, false, true)).requires_grad_();
  };
  const at::Tensor x = leaf(given.x), branch = has_branch ? leaf(given.branch) : at::Tensor();
  const LayerNormState state = {leaf(given.weight), leaf(given.bias), 1e-5};
  AddedNorm y;
  if (fused) {
    EXPECT_TRUE(has_fused_layer_norm(x, branch, state, given.of_norm.scalar_type()));
    y = fused_layer_norm(x, branch, state, given.of_norm.scalar_type());
    EXPECT_EQ(y.norm.scalar_type(), given.of_norm.scalar_type());
    EXPECT_EQ(y.sum.scalar_type(), given.x.scalar_type());
  } else {
    y.sum = has_branch ? x + branch : x;
    y.norm = at::layer_norm(y.sum, {x.size(-1)}, state.weight, state.bias, state.eps);
  }
  const auto in = [&](const at::Tensor& g) { return fused ? g : g.to(at::kDouble); };
  if (has_branch) {
    torch::autograd::backward({y.norm, y.sum}, {in(given.of_norm), in(given.of_sum)});
  } else {
    y.norm.backward(in(given.of_norm));
  }
  return {
      y.sum.detach(),      y.norm.detach(),  x.grad(), has_branch ? branch.grad() : at::Tensor(),
      state.weight.grad(), state.bias.grad()};
}

void for_each_case(at::ScalarType x, at::ScalarType norm, double tolerance) {
  // Fewer values than a vector has lanes, odd numbers, more rows than are summed at once, several
  // pieces.
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{5}, {3, 7}, {2, 3, 33}, {5, 1030}, {700, 17}}) {
    for (const bool has_branch : {false, true}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " branch " << has_branch);
      at::manual_seed(7);
      const LayerNormCase given = make_case(sizes, x, norm);
      const LayerNormPass found = pass(true, given, has_branch),
                          exact = pass(false, given, has_branch);
      const auto ours = found.all(), theirs = exact.all();
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(ours[i].sizes(), theirs[i].sizes());
        EXPECT_LE(relative_error(ours[i], theirs[i]), tolerance) << i;
      }
    }
  }
}

TEST(FusedLayerNorm, IsLibTorchsInFloat64) { for_each_case(at::kDouble, at::kDouble, 1e-12); }
TEST(FusedLayerNorm, IsExactInFloat32) { for_each_case(at::kFloat, at::kFloat, 3e-6); }
TEST(FusedLayerNorm, IsExactToBf16sRounding) {
  for_each_case(at::kFloat, at::kBFloat16, 4e-3);
  for_each_case(at::kBFloat16, at::kBFloat16, 8e-3);  // the sum is rounded too
}

TEST(FusedLayerNorm, GradientIsThatOfDifferences) {
  at::manual_seed(23);
  const auto leaf = [](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).requires_grad_();
  };
  const at::Tensor x = leaf({3, 5}), branch = leaf({3, 5});
  const LayerNormState state = {leaf({5}), leaf({5}), 1e-5};
  const at::Tensor g = at::randn({2, 3, 5}, at::kDouble);
  const auto y = [&] {
    const AddedNorm both = fused_layer_norm(x, branch, state, at::kDouble);
    return at::stack({both.norm, both.sum});
  };
  y().backward(g);
  for (const at::Tensor& input : {x, branch, state.weight, state.bias}) {
    EXPECT_LE(relative_error(input.grad(), numerical_gradient(y, g, input.detach())), 1e-7);
  }
}

TEST(FusedLayerNorm, EitherResultMayGoUnused) {
  at::manual_seed(3);
  LayerNormCase given = make_case({4, 9}, at::kFloat, at::kFloat);
  for (const bool uses_norm : {false, true}) {
    const at::Tensor x = given.x.clone().requires_grad_();
    const at::Tensor branch = given.branch.clone().requires_grad_();
    const LayerNormState state = {given.weight, given.bias, 1e-5};
    const AddedNorm y = fused_layer_norm(x, branch, state, at::kFloat);
    (uses_norm ? y.norm : y.sum).backward(given.of_norm);
    const at::Tensor again = given.x.clone().requires_grad_();
    const at::Tensor sum = again + given.branch;
    (uses_norm ? at::layer_norm(sum, {9}, given.weight, given.bias, 1e-5) : sum)
        .backward(given.of_norm);
    EXPECT_LE(relative_error(x.grad(), again.grad()), 1e-6);
    EXPECT_LE(relative_error(branch.grad(), again.grad()), 1e-6);
  }
}

TEST(FusedLayerNorm, KeepsDigitsWhereTheMeanIsLarge) {
  at::manual_seed(3);
  LayerNormCase given = make_case({4, 300}, at::kFloat, at::kFloat);
  given.x = given.x + 1000;
  const LayerNormPass found = pass(true, given, true), exact = pass(false, given, true);
  EXPECT_LE(relative_error(found.norm, exact.norm), 1e-4);
}

TEST(FusedLayerNorm, TakesTensorsOfAnyLayout) {
  at::manual_seed(5);
  const LayerNormCase given = make_case({6, 4}, at::kFloat, at::kFloat);
  LayerNormCase turned = given;
  for (at::Tensor* t : {&turned.x, &turned.branch, &turned.of_norm, &turned.of_sum}) {
    *t = t->t().contiguous().t();
    EXPECT_FALSE(t->is_contiguous());
  }
  const auto expected = pass(true, given, true).all(), found = pass(true, turned, true).all();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
}

TEST(FusedLayerNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const int before = at::get_num_threads();
  const LayerNormCase given = make_case({1000, 100}, at::kFloat, at::kBFloat16);
  at::set_num_threads(1);
  const auto one = pass(true, given, true).all();
  at::set_num_threads(3);
  const auto three = pass(true, given, true).all();
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(three[i].equal(one[i])) << i;
}

TEST(FusedLayerNorm, EveryInstructionSetGivesTheSame) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 37}), weight = at::randn({37}), bias = at::randn({37});
  const at::Tensor exact = at::layer_norm(x, {37}, weight, bias, 1e-5);
  for (const loops::Isa isa : loops::kAllIsas) {
    if (!loops::is_available(isa)) continue;
    at::Tensor y = at::empty_like(x), rows = at::empty({2, 3});
    loops::layer_norm_table(isa).of_float.forward(
        {3, 37}, {.x = x.const_data_ptr<float>(),
                  .branch = nullptr,
                  .weight = weight.const_data_ptr<float>(),
                  .bias = bias.const_data_ptr<float>(),
                  .eps = 1e-5,
                  .sum = nullptr,
                  .mean = rows.mutable_data_ptr<float>(),
                  .inverse_std = rows.mutable_data_ptr<float>() + 3,
                  .y = y.mutable_data_ptr<float>()});
    EXPECT_LE(relative_error(y, exact), 1e-6);
  }
}

TEST(FusedLayerNorm, UnderAutocastTheSumStaysWide) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 8});
  const LayerNormState state = {at::randn({8}), at::randn({8}), 1e-5};
  for (const bool fused : {false, true}) {
    const amp::Autocast scope(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
    const Fused when = fused ? Fused::kAlways : Fused::kNever;
    const AddedNorm y = add_layer_norm(x, at::randn({3, 8}).to(at::kBFloat16), state, when, true);
    EXPECT_EQ(y.sum.scalar_type(), at::kFloat);
    EXPECT_EQ(y.norm.scalar_type(), fused ? at::kBFloat16 : at::kFloat);
    EXPECT_EQ(layer_norm(x, state, when, true).scalar_type(), fused ? at::kBFloat16 : at::kFloat);
  }
}

TEST(FusedLayerNorm, StandsBackWhereItDoesNotApply) {
  const LayerNormState state = {at::ones({4}), at::zeros({4}), 1e-5};
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(has_fused_layer_norm(x, {}, state, at::kFloat));
  EXPECT_FALSE(has_fused_layer_norm(x, {}, state, at::kHalf));
  EXPECT_FALSE(has_fused_layer_norm(x, x.to(at::kBFloat16), state, at::kFloat));
  EXPECT_FALSE(has_fused_layer_norm(x, at::randn({4}), state, at::kFloat));
  EXPECT_FALSE(has_fused_layer_norm(at::randn({3, 5}), {}, state, at::kFloat));
  EXPECT_FALSE(has_fused_layer_norm(at::randn({0, 4}), {}, state, at::kFloat));
  EXPECT_EQ(layer_norm(at::randn({0, 4}), state, Fused::kAlways, true).size(0), 0);
}

TEST(FusedLayerNorm, ItsGradientHasNone) {
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const LayerNormState state = {at::ones({4}), at::zeros({4}), 1e-5};
  const at::Tensor y = fused_layer_norm(x, {}, state, at::kFloat).norm.sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true),
               c10::NotImplementedError);
}

}  // namespace
}  // namespace brim::nn
