// An output layer with the loss of its logits against float64: values and gradients, and its loops
// for every instruction set.
#include "framework/nn/fused/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/nn/flops.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/loops/linear_cross_entropy.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/measured_forms.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

constexpr int64_t kNoLabel = -100;
constexpr int64_t kTokens = loops::kBlockTokens;

float* values(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

// --- the loops -----------------------------------------------------------------------------------

class LinearCrossEntropyLoops : public testing::TestWithParam<loops::Isa> {
 protected:
  void SetUp() override {
    table_ = loops::linear_cross_entropy_table(GetParam());
    at::manual_seed(1);
  }
  /// f(loops, format, its relative rounding) for each stored format.
  template <class F>
  void for_each_format(const F& f) const {
    f(table_.of_float, at::kFloat, 1e-6);
    f(table_.of_bfloat16, at::kBFloat16, 4e-3);
  }

 private:
  loops::LinearCrossEntropyTable table_{};
};

template <class T>
T* values_as(const at::Tensor& tensor,
             void (*)(int64_t, const float*, float*, float*, T*, int64_t)) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

TEST_P(LinearCrossEntropyLoops, ExponentialsOfABlock) {
  for_each_format([](const auto& loop, at::ScalarType format, double rounding) {
    for (const int64_t rows : {1, 7, 128}) {
      SCOPED_TRACE(testing::Message() << rows << " of " << format);
      const at::Tensor logits = at::randn({rows, kTokens}) * 20, exact = logits.to(at::kDouble);
      const at::Tensor all = at::full({rows, kTokens + 3}, 7, format);
      const at::Tensor found = at::empty({2, kTokens});
      loop.exponentials(rows, values(logits), values(found), values(found) + kTokens,
                        values_as(all, loop.exponentials), kTokens + 3);
      const at::Tensor highest = std::get<0>(exact.max(0)), expected = (exact - highest).exp();
      EXPECT_TRUE(found[0].to(at::kDouble).equal(highest));
      EXPECT_LE(relative_error(found[1], expected.sum(0)), 1e-6);
      EXPECT_LE(relative_error(all.narrow(1, 0, kTokens), expected), rounding);
      EXPECT_TRUE(all.narrow(1, kTokens, 3).eq(7).all().item<bool>());
    }
  });
}

TEST_P(LinearCrossEntropyLoops, BlocksAreMerged) {
  for_each_format([](const auto& loop, at::ScalarType /*format*/, double /*rounding*/) {
    for (const int64_t blocks : {1, 5}) {
      SCOPED_TRACE(blocks);
      const int64_t stride = kTokens + 16;
      const at::Tensor highest = at::randn({blocks, stride}) * 30, before = highest.clone();
      const at::Tensor sums = at::rand({blocks, stride}) + 1, shares = at::rand({kTokens});
      const at::Tensor log_sums = at::empty({kTokens});
      loop.merge(blocks, stride, values(sums), values(shares), values(highest), values(log_sums));
      const auto exact = [](const at::Tensor& t) {
        return t.narrow(1, 0, kTokens).to(at::kDouble);
      };
      const at::Tensor expected = (exact(before) + exact(sums).log()).logsumexp(0);
      EXPECT_LE(relative_error(log_sums, expected), 1e-6);
      EXPECT_LE(
          relative_error(highest.narrow(1, 0, kTokens), shares * (exact(before) - expected).exp()),
          1e-5);
      EXPECT_TRUE(highest.narrow(1, kTokens, 16).equal(before.narrow(1, kTokens, 16)));
    }
  });
}

TEST_P(LinearCrossEntropyLoops, RowsAreScaled) {
  for_each_format([](const auto& loop, at::ScalarType format, double /*rounding*/) {
    const int64_t columns = 2 * kTokens, stride = columns + 5;
    const at::Tensor all = at::randn({3, stride}).to(format), before = all.clone();
    const at::Tensor factors = at::randn({columns}), wide = at::empty({3, columns});
    const at::Tensor expected = before.narrow(1, 0, columns).to(at::kFloat) * factors;
    auto* const in_place = values_as(all, loop.exponentials);
    loop.scale_to_float(3, columns, values(factors), in_place, stride, values(wide), columns);
    EXPECT_TRUE(wide.equal(expected));
    loop.scale(3, columns, values(factors), in_place, stride, in_place, stride);
    EXPECT_TRUE(all.narrow(1, 0, columns).equal(expected.to(format)));
    EXPECT_TRUE(all.narrow(1, columns, 5).equal(before.narrow(1, columns, 5)));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, LinearCrossEntropyLoops,
                         testing::ValuesIn(available_isas()));

// --- the layer and its loss ----------------------------------------------------------------------

/// How products are taken.
enum class Way { kFloat, kBf16, kUpcast };

// Where the CPU lacks the instructions of a way, there is nothing to be tested.
std::vector<Way> available_ways() {
  std::vector<Way> ways;
  if (cpu::multiplies_bf16_pairs()) ways.push_back(Way::kBf16);
  if (cpu::multiplies_float_blocks()) ways.insert(ways.end(), {Way::kFloat, Way::kUpcast});
  return ways;
}

class LinearCrossEntropy : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { at::manual_seed(2); }
  at::ScalarType format() const { return GetParam() == Way::kFloat ? at::kFloat : at::kBFloat16; }
  amp::Precision precision() const {
    return {.compute = format(), .autocast = GetParam() != Way::kFloat};
  }
  struct Factors {
    at::Tensor x, weight, labels;
  };
  /// Every fifth token has no label.
  Factors factors(int64_t rows, int64_t width, int64_t classes) const {
    Factors of = {at::randn({rows, width}).to(format()), at::randn({classes, width}) * 0.3,
                  at::randint(classes, {rows}, at::kLong)};
    if (rows > 1) of.labels.slice(0, 1, std::nullopt, 5).fill_(kNoLabel);
    return of;
  }
  struct Outcome {
    at::Tensor loss, of_x, of_weight;
  };
  /// With the gradient of `scale` times the loss.
  Outcome outcome(const Factors& of, Fused when, double scale = 1) const {
    const at::Tensor x = of.x.detach().clone().requires_grad_();
    const at::Tensor weight = of.weight.detach().clone().requires_grad_();
    at::Tensor loss;
    {
      const bool is_exact = of.x.scalar_type() == at::kDouble;
      const amp::Autocast scope(at::kCPU, is_exact ? amp::Precision{} : precision());
      loss = linear_cross_entropy(x, weight, of.labels, kNoLabel, when, /*is_training=*/true);
    }
    EXPECT_EQ(loss.grad_fn()->name().find("FusedLinearCrossEntropy") != std::string::npos,
              when == Fused::kAlways);
    (scale == 1 ? loss : loss * scale).backward();
    return {loss.detach(), x.grad(), weight.grad()};
  }

 private:
  Bf16Products products_{GetParam() != Way::kUpcast};
};

INSTANTIATE_TEST_SUITE_P(EveryWay, LinearCrossEntropy, testing::ValuesIn(available_ways()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearCrossEntropy);

// One token, a group of 64 and its neighbours, more than a panel; fewer classes than a block, odd
// ones, more blocks than chunks; widths of one pair, no multiple of a vector, and more than a
// product.
TEST_P(LinearCrossEntropy, IsExactToBfloat16sRounding) {
  for (const auto& [rows, width, classes] : {std::tuple(1, 2, 1),
                                             {3, 10, 7},
                                             {63, 64, 128},
                                             {65, 96, 129},
                                             {128, 64, 300},
                                             {200, 34, 4500},
                                             {1025, 16, 257},
                                             {2100, 130, 131}}) {
    SCOPED_TRACE(testing::Message() << rows << " tokens, " << width << " wide, " << classes);
    const Factors of = factors(rows, width, classes);
    const Outcome found = outcome(of, Fused::kAlways);
    const Outcome expected = outcome(
        {of.x.to(at::kDouble),
         (GetParam() == Way::kBf16 ? of.weight.to(at::kBFloat16) : of.weight).to(at::kDouble),
         of.labels},
        Fused::kNever);
    EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(found.loss.dim(), 0);
    EXPECT_NEAR(found.loss.item<double>(), expected.loss.item<double>(), 1e-5);
    EXPECT_EQ(found.of_x.scalar_type(), format());
    EXPECT_EQ(found.of_weight.scalar_type(), at::kFloat);
    if (classes == 1) continue;  // gradients are 0 but for rounding
    const bool is_rounded = GetParam() != Way::kFloat;
    EXPECT_LE(relative_error(found.of_x, expected.of_x), is_rounded ? 6e-3 : 3e-6);
    EXPECT_LE(relative_error(found.of_weight, expected.of_weight), is_rounded ? 4e-3 : 3e-6);
  }
}

// Of few rows the layer by itself has two forms too.
TEST_P(LinearCrossEntropy, IsMeasured) {
  const Factors of = factors(20, 16, 200);
  const at::Tensor weight = of.weight.clone().requires_grad_();
  const amp::Autocast scope(at::kCPU, precision());
  const at::Tensor loss = linear_cross_entropy(of.x, weight, of.labels, kNoLabel, Fused::kMeasured,
                                               /*is_training=*/true);
  EXPECT_NEAR(loss.item<double>(), outcome(of, Fused::kAlways).loss.item<double>(), 1e-2);
  const auto forms = measured_forms();
  EXPECT_TRUE(std::any_of(forms.begin(), forms.end(), [](const auto& form) {
    return form.first.find("linear cross-entropy") == 0 &&
           form.first.find("[20,16] Long[20] Float[200,16]") != std::string::npos;
  }));
}

TEST_P(LinearCrossEntropy, ItsGradientsTakeTheLosssOwn) {
  const Factors of = factors(70, 16, 200);
  const Outcome one = outcome(of, Fused::kAlways), some = outcome(of, Fused::kAlways, 0.25);
  EXPECT_TRUE(some.of_x.equal(one.of_x * 0.25));
  EXPECT_TRUE(some.of_weight.equal(one.of_weight * 0.25));
}

TEST_P(LinearCrossEntropy, IsTheSameOnAnyNumberOfThreads) {
  const Factors of = factors(1100, 34, 5000);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = outcome(of, Fused::kAlways);
  at::set_num_threads(4);
  const Outcome four = outcome(of, Fused::kAlways);
  at::set_num_threads(before);
  EXPECT_TRUE(four.loss.equal(one.loss));
  EXPECT_TRUE(four.of_x.equal(one.of_x));
  EXPECT_TRUE(four.of_weight.equal(one.of_weight));
}

TEST_P(LinearCrossEntropy, OnlyWhatIsWantedIsComputed) {
  const Factors of = factors(70, 16, 200);
  const Outcome all = outcome(of, Fused::kAlways);
  const amp::Autocast scope(at::kCPU, precision());
  const auto loss = [&](const at::Tensor& x, const at::Tensor& weight) {
    return fused_linear_cross_entropy(x, weight, of.labels, kNoLabel);
  };
  EXPECT_TRUE(loss(of.x, of.weight).equal(all.loss));
  EXPECT_FALSE(loss(of.x, of.weight).requires_grad());
  const at::Tensor x = of.x.clone().requires_grad_(), weight = of.weight.clone().requires_grad_();
  loss(x, of.weight).backward();
  EXPECT_TRUE(x.grad().equal(all.of_x));
  loss(of.x, weight).backward();
  EXPECT_TRUE(weight.grad().equal(all.of_weight));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(loss(x, weight).equal(all.loss));
}

TEST_P(LinearCrossEntropy, WithoutLabelsLossAndGradientsAreZero) {
  Factors of = factors(20, 8, 30);
  of.labels.fill_(kNoLabel);
  const Outcome found = outcome(of, Fused::kAlways);
  EXPECT_EQ(found.loss.item<double>(), 0);
  EXPECT_TRUE(found.of_x.eq(0).all().item<bool>());
  EXPECT_TRUE(found.of_weight.eq(0).all().item<bool>());
}

TEST_P(LinearCrossEntropy, LogitsFarApartAndNumbersThatAreNone) {
  Factors of = factors(10, 8, 300);
  of.weight.mul_(200);  // all but one probability are 0
  const Outcome far = outcome(of, Fused::kAlways);
  EXPECT_TRUE(std::isfinite(far.loss.item<double>()));
  EXPECT_TRUE(far.of_weight.isfinite().all().item<bool>());
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Factors broken = factors(10, 8, 300);
    broken.x[4][3] = bad;
    EXPECT_FALSE(std::isfinite(outcome(broken, Fused::kAlways).loss.item<double>())) << bad;
  }
}

TEST_P(LinearCrossEntropy, ALabelThatIsNoClassIsAnError) {
  for (const int64_t bad : {int64_t{30}, int64_t{-1}}) {
    Factors of = factors(20, 8, 30);
    of.labels[7] = bad;
    try {
      outcome(of, Fused::kAlways);
      ADD_FAILURE() << bad << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(), testing::HasSubstr("in row 7 of 20"));
    }
  }
}

TEST_P(LinearCrossEntropy, OthersAreLeftToTheLogits) {
  const Factors of = factors(4, 6, 5);
  const auto has = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels) {
    return has_fused_linear_cross_entropy(x, weight, labels);
  };
  // Without autocast both are of one format.
  EXPECT_EQ(has(of.x, of.weight, of.labels), GetParam() == Way::kFloat);
  const amp::Autocast scope(at::kCPU, precision());
  EXPECT_TRUE(has(of.x, of.weight, of.labels));
  EXPECT_FALSE(has(of.x.to(at::kDouble), of.weight.to(at::kDouble), of.labels));
  EXPECT_FALSE(has(of.x, of.weight.to(at::kBFloat16), of.labels));
  EXPECT_FALSE(has(of.x, at::randn({6, 5}).t(), of.labels));
  EXPECT_FALSE(has(of.x, of.weight, of.labels.narrow(0, 0, 3)));
  EXPECT_FALSE(has(of.x.narrow(0, 0, 0), of.weight, of.labels.narrow(0, 0, 0)));
  EXPECT_EQ(has(at::randn({4, 7}), at::randn({5, 7}), of.labels), GetParam() != Way::kBf16);
}

TEST_P(LinearCrossEntropy, ItsGradientHasNone) {
  const amp::Autocast scope(at::kCPU, precision());
  const Factors of = factors(4, 6, 5);
  const at::Tensor weight = of.weight.clone().requires_grad_();
  const at::Tensor loss = fused_linear_cross_entropy(of.x, weight, of.labels, kNoLabel);
  EXPECT_THROW(torch::autograd::grad({loss}, {weight}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST(LinearCrossEntropyOperator, ShapesAndProductsAreKnownWithoutComputing) {
  const at::Tensor x = at::empty({7, 6}, at::kBFloat16).to(at::kMeta);
  const at::Tensor weight = at::empty({5, 6}).to(at::kMeta);
  const at::Tensor labels = at::empty({7}, at::kLong).to(at::kMeta);
  const auto [loss, of_x, of_weight] = find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, bool, std::array<bool, 2>)>(
                                           "brim::linear_cross_entropy")
                                           .call(x, weight, labels, kNoLabel, false, {true, false});
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(of_x.sizes(), x.sizes());
  EXPECT_EQ(of_x.scalar_type(), at::kBFloat16);
  EXPECT_FALSE(of_weight.defined());
  const auto flops = [&](bool with_x, bool with_weight) {
    const std::vector<c10::IValue> inputs = {
        x, weight, labels, kNoLabel, false, c10::List<bool>({with_x, with_weight})};
    return product_flops("brim::linear_cross_entropy")(
        c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  };
  EXPECT_EQ(flops(false, false), 2 * 7 * 6 * 5);
  EXPECT_EQ(flops(true, true), 3 * 2 * 7 * 6 * 5);
}

}  // namespace
}  // namespace brim::nn
