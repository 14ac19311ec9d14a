// Fully connected layers by blocks, of few rows and of many, against float64: values, gradients,
// and the loops that lay factors out, for every instruction set.
#include "framework/nn/fused/block_linear.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/nn/flops.h"
#include "framework/nn/fused/block_linear_cpu.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/loops/pairs.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/linear.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

// --- the loops -----------------------------------------------------------------------------------

loops::BFloat16* bf16_bits(at::Tensor& tensor) {
  return static_cast<loops::BFloat16*>(tensor.mutable_data_ptr());
}
const loops::BFloat16* bf16_bits(const at::Tensor& tensor) {
  return static_cast<const loops::BFloat16*>(tensor.const_data_ptr());
}

/// [K, N] to [K/2, N, 2].
at::Tensor in_pairs(const at::Tensor& matrix) {
  return matrix.reshape({matrix.size(0) / 2, 2, matrix.size(1)}).transpose(1, 2).contiguous();
}

class PairLoops : public testing::TestWithParam<loops::Isa> {
 protected:
  void SetUp() override {
    loops_ = loops::pair_table(GetParam());
    at::manual_seed(1);
  }
  loops::PairLoops loops_{};
};

TEST_P(PairLoops, RoundAndPairRows) {
  for (const int64_t n : {1, 7, 16, 33, 100}) {
    SCOPED_TRACE(n);
    const at::Tensor rows = at::randn({2, n});
    at::Tensor rounded = at::empty({2, n}, at::kBFloat16);
    const auto* even = rows.const_data_ptr<float>();
    loops_.round_rows(2, n, even, nullptr, bf16_bits(rounded), n);
    EXPECT_TRUE(rounded.equal(rows.to(at::kBFloat16)));
    at::Tensor pairs = at::empty({1, n, 2}, at::kBFloat16);
    loops_.pair_rounded(n, even, even + n, bf16_bits(pairs));
    EXPECT_TRUE(pairs.equal(in_pairs(rounded)));
    pairs.zero_();
    loops_.pair(2, n, bf16_bits(rounded), n, bf16_bits(pairs));
    EXPECT_TRUE(pairs.equal(in_pairs(rounded)));
    loops_.pair(1, n, bf16_bits(rounded), n, bf16_bits(pairs));
    EXPECT_TRUE(pairs.select(2, 0).equal(rounded.narrow(0, 0, 1)));
    EXPECT_TRUE(pairs.select(2, 1).eq(0).all().item<bool>());
  }
}

TEST_P(PairLoops, RoundAndSumRows) {
  for (const int64_t columns : {1, 16, 70}) {
    for (const int64_t rows : {1, 2, 33}) {
      SCOPED_TRACE(testing::Message() << rows << " by " << columns);
      const at::Tensor sums = at::randn({rows, columns}), bias = at::randn({columns});
      const auto* from = sums.const_data_ptr<float>();
      at::Tensor rounded = at::zeros({rows, columns + 3}, at::kBFloat16);
      loops_.round_rows(rows, columns, from, bias.const_data_ptr<float>(), bf16_bits(rounded),
                        columns + 3);
      EXPECT_TRUE(rounded.narrow(1, 0, columns).equal((sums + bias).to(at::kBFloat16)));
      EXPECT_TRUE(rounded.narrow(1, columns, 3).eq(0).all().item<bool>());
      at::Tensor matrix = at::empty({rows, columns}, at::kBFloat16);
      loops_.round_rows(rows, columns, from, nullptr, bf16_bits(matrix), columns);
      EXPECT_TRUE(matrix.equal(sums.to(at::kBFloat16)));
      at::Tensor of_columns = at::empty({columns});
      loops_.sum_rows(rows, columns, bf16_bits(matrix), columns,
                      of_columns.mutable_data_ptr<float>());
      EXPECT_LE(relative_error(of_columns, matrix.to(at::kDouble).sum(0)), 1e-6);
    }
  }
}

TEST_P(PairLoops, Transpose) {
  for (const int64_t rows : {1, 5, 16, 40, 96}) {
    for (const int64_t columns : {2, 6, 32, 70}) {
      SCOPED_TRACE(testing::Message() << rows << " by " << columns);
      const at::Tensor whole = at::randn({rows, columns + 4}).to(at::kBFloat16);
      const at::Tensor matrix = whole.narrow(1, 0, columns);
      at::Tensor turned = at::zeros({columns, rows + 3}, at::kBFloat16);
      loops_.transpose(rows, columns, bf16_bits(whole), columns + 4, bf16_bits(turned), rows + 3);
      EXPECT_TRUE(turned.narrow(1, 0, rows).equal(matrix.t()));
      EXPECT_TRUE(turned.narrow(1, rows, 3).eq(0).all().item<bool>());
      at::Tensor pairs = at::empty({columns / 2, rows, 2}, at::kBFloat16);
      loops_.pair_transposed(rows, columns, bf16_bits(whole), columns + 4, bf16_bits(pairs));
      EXPECT_TRUE(pairs.equal(in_pairs(matrix.t().contiguous())));

      const at::Tensor wide = at::randn({rows, columns}), bias = at::randn({rows});
      at::Tensor sums = at::zeros({columns, rows + 2}, at::kBFloat16);
      loops_.round_transposed(rows, columns, wide.const_data_ptr<float>(),
                              bias.const_data_ptr<float>(), bf16_bits(sums), rows + 2);
      EXPECT_TRUE(sums.narrow(1, 0, rows).equal((wide.t() + bias).to(at::kBFloat16)));
      EXPECT_TRUE(sums.narrow(1, rows, 2).eq(0).all().item<bool>());
      loops_.round_transposed(rows, columns, wide.const_data_ptr<float>(), nullptr, bf16_bits(sums),
                              rows + 2);
      EXPECT_TRUE(sums.narrow(1, 0, rows).equal(wide.t().to(at::kBFloat16)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, PairLoops, testing::ValuesIn(available_isas()));

// --- the layer -----------------------------------------------------------------------------------

struct BlockLinearPass {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;
};

at::Tensor leaf(const at::Tensor& t) {
  return t.defined() ? t.detach().clone().requires_grad_() : t;
}

BlockLinearPass pass_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& g, bool is_fused) {
  const at::Tensor input = leaf(x), matrix = leaf(weight), added = leaf(bias);
  const bool is_lowered = is_fused && x.scalar_type() == at::kBFloat16;
  const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = is_lowered});
  const at::Tensor y =
      is_fused ? block_linear(input, matrix, added) : at::linear(input, matrix, added);
  y.backward(g);
  return {y.detach(), input.grad(), matrix.grad(), bias.defined() ? added.grad() : at::Tensor()};
}

/// With instructions that multiply it; float32 has the kernel on more CPUs.
std::vector<at::ScalarType> formats() {
  at::manual_seed(2);
  std::vector<at::ScalarType> result;
  if (cpu::multiplies_float_blocks()) result.push_back(at::kFloat);
  if (cpu::multiplies_bf16_pairs()) result.push_back(at::kBFloat16);
  return result;
}
// Those that are of bfloat16 pass where the CPU has no such instructions: there is nothing to test.
bool is_missing() { return formats().empty() || formats().back() != at::kBFloat16; }

/// Against float64, of a weight in that format.
void expect_exact(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& g) {
  const at::ScalarType format = x.scalar_type();
  const auto exact = [](const at::Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; };
  const BlockLinearPass found = pass_of(x, weight, bias, g, /*is_fused=*/true);
  const BlockLinearPass expected =
      pass_of(exact(x), exact(weight.to(format)), exact(bias), exact(g), false);
  const double tolerance = format == at::kFloat ? 1e-6 : 3e-3;
  EXPECT_EQ(found.y.scalar_type(), format);
  EXPECT_EQ(found.y.sizes(), g.sizes());
  EXPECT_EQ(found.x_gradient.scalar_type(), format);
  EXPECT_EQ(found.x_gradient.sizes(), x.sizes());
  EXPECT_LE(relative_error(found.y, expected.y), tolerance);
  EXPECT_LE(relative_error(found.x_gradient, expected.x_gradient), tolerance);
  EXPECT_EQ(found.weight_gradient.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(found.weight_gradient, expected.weight_gradient), 1e-6);
  if (!bias.defined()) return;
  EXPECT_LE(relative_error(found.bias_gradient, expected.bias_gradient), 1e-6);
}

// One row, an odd number, more than a vector has; a vector, rows of rows, rows that don't follow
// each other; two outputs, more than a block has, and than one product adds up.
TEST(BlockLinear, IsExactToItsFormatsRounding) {
  const at::Tensor apart = at::randn({5, 3, 24}).transpose(0, 1);
  for (const at::ScalarType format : formats()) {
    for (const at::Tensor& values : {at::randn({24}), at::randn({1, 24}), at::randn({7, 24}),
                                     at::randn({65, 130}), at::randn({2, 3, 24}), apart}) {
      for (const int64_t outputs : {2, 40, 1090}) {
        for (const bool has_bias : {true, false}) {
          SCOPED_TRACE(testing::Message() << format << values.sizes() << outputs << has_bias);
          std::vector<int64_t> sizes = values.sizes().vec();
          sizes.back() = outputs;
          expect_exact(values.to(format), at::randn({outputs, values.size(-1)}),
                       has_bias ? at::randn({outputs}) : at::Tensor(), at::randn(sizes).to(format));
        }
      }
    }
  }
}

/// While it lives, LibTorch fills new memory with not-a-number.
class FilledMemory {
 public:
  FilledMemory() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~FilledMemory() { at::globalContext().setDeterministicAlgorithms(false, false); }
  FilledMemory(const FilledMemory&) = delete;
  FilledMemory& operator=(const FilledMemory&) = delete;
};

// Just many, an odd number, more than one chunk; a left factor, a right one, that is the wider, so
// that the narrower is turned, and the result turned back; more columns than a panel has.
TEST(BlockLinear, OfManyRowsIsExactToItsFormatsRounding) {
  if (is_missing()) return;
  const FilledMemory filled;
  const auto bf16 = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  for (const int64_t rows : {257, 1301, 2050}) {
    for (const int64_t outputs : {2, 40, 1090}) {
      for (const int64_t inputs : {6, 66, 130}) {
        for (const bool is_transposed : {false, true}) {
          SCOPED_TRACE(testing::Message() << rows << " " << inputs << " " << outputs);
          const at::Tensor weight =
              is_transposed ? at::randn({inputs, outputs}).t() : at::randn({outputs, inputs});
          const bool has_bias = rows != 257;
          expect_exact(bf16({rows, inputs}), weight, has_bias ? at::randn({outputs}) : at::Tensor(),
                       bf16({rows, outputs}));
        }
      }
    }
  }
  expect_exact(bf16({300, 2100}), at::randn({70, 2100}), at::randn({70}), bf16({300, 70}));
  expect_exact(bf16({3, 100, 24}), at::randn({70, 24}), at::randn({70}), bf16({3, 100, 70}));
}

TEST(BlockLinear, AGradientLiesAsTheWeightDoes) {
  if (is_missing()) return;
  const at::Tensor x = at::randn({3000, 8}).to(at::kBFloat16);
  const at::Tensor g = at::randn({3000, 40}).to(at::kBFloat16);
  for (const at::Tensor& weight : {at::randn({40, 8}), at::randn({8, 40}).t()}) {
    at::Tensor learned = weight.detach().requires_grad_();
    const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
    block_linear(x, learned, {}).backward(g);
    EXPECT_EQ(learned.grad().strides(), weight.strides());
  }
}

TEST(BlockLinear, Float32TakesOddSizes) {
  if (formats().empty()) return;
  for (const int64_t rows : {1, 3, 256}) {
    expect_exact(at::randn({rows, 33}), at::randn({7, 33}), at::randn({7}), at::randn({rows, 7}));
  }
}

// A part of a batch that is measured may have few rows where the batch has many.
TEST(BlockLinear, ATransposedWeightTakesAnyNumberOfRows) {
  for (const at::ScalarType format : formats()) {
    if (format == at::kFloat && !cpu::multiplies_float_tiles()) continue;
    for (const int64_t rows : {1, 3, 64, 256, 300}) {
      SCOPED_TRACE(testing::Message() << format << " " << rows);
      expect_exact(at::randn({rows, 34}).to(format), at::randn({34, 72}).t(), at::randn({72}),
                   at::randn({rows, 72}).to(format));
    }
  }
}

TEST(BlockLinear, IsTheSameOnAnyNumberOfThreads) {
  for (const auto& [format, rows] :
       {std::pair(at::kFloat, 33), std::pair(at::kBFloat16, 33), std::pair(at::kBFloat16, 1301)}) {
    const std::vector<at::ScalarType> there = formats();
    if (std::find(there.begin(), there.end(), format) == there.end()) continue;
    const at::Tensor x = at::randn({rows, 300}).to(format), weight = at::randn({250, 300});
    const at::Tensor bias = at::randn({250}), g = at::randn({rows, 250}).to(format);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const BlockLinearPass one = pass_of(x, weight, bias, g, true);
    at::set_num_threads(3);
    const BlockLinearPass three = pass_of(x, weight, bias, g, true);
    at::set_num_threads(before);
    EXPECT_TRUE(three.y.equal(one.y));
    EXPECT_TRUE(three.x_gradient.equal(one.x_gradient));
    EXPECT_TRUE(three.weight_gradient.equal(one.weight_gradient));
    EXPECT_TRUE(rows == 33 || three.bias_gradient.equal(one.bias_gradient));
  }
}

TEST(BlockLinear, ALayerTakesItInBothFormats) {
  if (is_missing()) return;
  Linear layer(24, 40);
  const at::Tensor x = at::randn({2, 5, 24});
  const auto trained = [&](bool fused, bool autocast) {
    layer->zero_grad();
    const at::Tensor in = leaf(x);
    forward_of(layer, in, fused, autocast, "BlockLinear", fused).square().sum().backward();
    EXPECT_EQ(in.grad().scalar_type(), at::kFloat);
    return BlockLinearPass{{}, in.grad(), layer->weight.grad().clone(), layer->bias.grad().clone()};
  };
  for (const bool autocast : {true, false}) {
    const BlockLinearPass found = trained(true, autocast), expected = trained(false, autocast);
    const double tolerance = autocast ? 1e-2 : 1e-6;
    EXPECT_LE(relative_error(found.x_gradient, expected.x_gradient), tolerance);
    EXPECT_LE(relative_error(found.weight_gradient, expected.weight_gradient), tolerance);
    EXPECT_LE(relative_error(found.bias_gradient, expected.bias_gradient), tolerance);
  }
}

TEST(BlockLinear, FrozenParametersAreNoHindrance) {
  if (is_missing()) return;
  for (const int64_t rows : {3, 300}) {
    const at::Tensor x = at::randn({rows, 6}).to(at::kBFloat16), weight = at::randn({4, 6});
    const at::Tensor bias = at::randn({4}), g = at::randn({rows, 4}).to(at::kBFloat16);
    const BlockLinearPass all = pass_of(x, weight, bias, g, true);
    const at::Tensor learned = leaf(bias), input = leaf(x), matrix = leaf(weight);
    const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
    block_linear(x, weight, learned).backward(g);
    EXPECT_LE(relative_error(learned.grad(), all.bias_gradient), 1e-6);
    block_linear(input, weight, bias).backward(g);
    EXPECT_TRUE(input.grad().equal(all.x_gradient));
    block_linear(x, matrix, bias).backward(g);
    EXPECT_TRUE(matrix.grad().equal(all.weight_gradient));
  }
}

TEST(BlockLinear, ItsGradientHasNone) {
  if (is_missing()) return;
  const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
  const at::Tensor x = at::randn({3, 6}).to(at::kBFloat16).requires_grad_();
  const at::Tensor y = block_linear(x, at::randn({4, 6}), {});
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST(BlockLinear, OthersAreLeftToLibTorch) {
  if (is_missing()) return;
  const at::Tensor x = at::randn({3, 6}), weight = at::randn({4, 6}), none;
  EXPECT_FALSE(has_block_linear(x.to(at::kBFloat16), weight, none));  // without autocast
  EXPECT_FALSE(has_block_linear(x.to(at::kDouble), weight.to(at::kDouble), none));
  EXPECT_TRUE(has_block_linear(x, at::randn({5, 6}), none));
  const amp::Autocast autocast(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
  EXPECT_TRUE(has_block_linear(x, weight, none));
  EXPECT_TRUE(has_block_linear(x, weight, at::randn({4})));
  EXPECT_FALSE(has_block_linear(x, weight.to(at::kBFloat16), none));
  EXPECT_FALSE(has_block_linear(x, at::randn({6, 4}).t(), none));
  EXPECT_FALSE(has_block_linear(x, at::randn({5, 6}), none));
  EXPECT_FALSE(has_block_linear(at::randn({3, 7}), at::randn({4, 7}), none));
  EXPECT_TRUE(has_block_linear(at::randn({257, 6}), weight, none));
  EXPECT_TRUE(has_block_linear(at::randn({257, 6}), at::randn({6, 4}).t(), none));
  EXPECT_FALSE(has_block_linear(at::randn({257, 6}), at::randn({4, 12}).narrow(1, 0, 6), none));
  EXPECT_FALSE(has_block_linear(x.narrow(0, 0, 0), weight, none));
}

TEST(BlockLinear, ShapesAreKnownWithoutComputing) {
  const auto meta = [](const at::Tensor& t) { return t.to(at::kMeta); };
  const at::Tensor x = meta(at::randn({3, 6}).to(at::kBFloat16)), weight = meta(at::randn({4, 6}));
  const at::Tensor y =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&)>(
          "brim::block_linear")
          .call(x, weight, std::nullopt);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({3, 4}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, std::array<bool, 3>);
  const auto [of_x, of_weight, of_bias] = find_operator<Backward>("brim::block_linear_backward")
                                              .call(y, x, weight, {true, true, false});
  EXPECT_EQ(of_x.sizes(), x.sizes());
  EXPECT_EQ(of_weight.sizes(), weight.sizes());
  EXPECT_EQ(of_weight.scalar_type(), at::kFloat);
  EXPECT_FALSE(of_bias.defined());
}

TEST(BlockLinear, ItsProductsAreCounted) {
  const at::Tensor x = at::randn({3, 6}).to(at::kBFloat16), weight = at::randn({4, 6});
  const auto flops = [](const char* name, const std::vector<c10::IValue>& inputs) {
    return product_flops(name)(c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  };
  EXPECT_EQ(flops("brim::block_linear", {x, weight, c10::IValue()}), 2 * 3 * 4 * 6);
  const c10::List<bool> wanted({false, true, true});
  EXPECT_EQ(flops("brim::block_linear_backward", {at::randn({3, 4}), x, weight, wanted}),
            2 * 3 * 4 * 6);
}

}  // namespace
}  // namespace brim::nn
