// Fused cross-entropy against LibTorch's: values, gradients, and labels that are no class.
#include "framework/nn/fused/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "framework/base/error.h"
#include "framework/nn/fused/loops/cross_entropy.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kIgnored = -100;

at::Tensor labels_for(int64_t rows, int64_t classes) {
  return at::randint(classes, {rows}, at::kLong);
}

ClassTargets targets_for(int64_t rows, int64_t classes, bool mixed, double smoothing) {
  ClassTargets targets;
  targets.labels = labels_for(rows, classes);
  targets.smoothing = smoothing;
  if (rows > 2) targets.labels[1] = kIgnored;
  if (!mixed) return targets;
  targets.partner_labels = labels_for(rows, classes);
  targets.partner_labels[0] = targets.labels[0];  // both the same
  targets.label_shares = at::rand({rows});
  return targets;
}

/// The same by LibTorch's operator.
at::Tensor plain(const at::Tensor& logits, const ClassTargets& targets) {
  const auto losses = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(logits, labels, {}, at::Reduction::None, targets.ignore_index,
                                  targets.smoothing);
  };
  if (!targets.partner_labels.defined()) {
    const at::Tensor count = (targets.labels != targets.ignore_index).sum().clamp_min(1);
    return losses(targets.labels).sum() / count;
  }
  const at::Tensor share = targets.label_shares.to(logits.scalar_type());
  return (share * losses(targets.labels) + (1 - share) * losses(targets.partner_labels)).mean();
}

struct LossPass {
  at::Tensor loss, gradient;
};

template <class Loss>
LossPass pass(const Loss& loss_of, const at::Tensor& logits, const ClassTargets& targets) {
  const at::Tensor x = logits.detach().clone().requires_grad_();
  const at::Tensor loss = loss_of(x, targets);
  (loss * 3).backward();
  return {loss.detach(), x.grad()};
}

void for_each_case(const std::function<void(const at::Tensor&, const ClassTargets&)>& f) {
  // Fewer classes than a vector has lanes, odd numbers, more than a block.
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {1, 1}, {1, 2}, {3, 7}, {5, 16}, {4, 33}, {64, 10}, {7, 1000}, {3, 2049}, {2, 5003}};
  at::manual_seed(7);
  for (const auto& [rows, classes] : sizes) {
    for (const bool mixed : {false, true}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const double size : {1.0, 40.0}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << classes << " mixed " << mixed
                                          << " smoothing " << smoothing << " size " << size);
          f(at::randn({rows, classes}, at::kDouble) * size,
            targets_for(rows, classes, mixed, smoothing));
        }
      }
    }
  }
}

void expect_close(const LossPass& found, const LossPass& exact, double loss, double gradient) {
  EXPECT_EQ(found.loss.dim(), 0);
  EXPECT_NEAR(found.loss.to(at::kDouble).item<double>(), exact.loss.item<double>(),
              loss * std::max(1.0, exact.loss.item<double>()));
  EXPECT_EQ(found.gradient.sizes(), exact.gradient.sizes());
  const double size = exact.gradient.norm().item<double>();
  const double off = (found.gradient.to(at::kDouble) - exact.gradient).norm().item<double>();
  // A probability less the target may cancel down to the rounding of 1.
  const double rounding = found.loss.scalar_type() == at::kDouble ? 1e-15 : 1e-7;
  EXPECT_LE(off, gradient * size + 3 * rounding);
}

TEST(FusedCrossEntropy, IsLibTorchsInFloat64) {
  for_each_case([](const at::Tensor& logits, const ClassTargets& targets) {
    ASSERT_TRUE(has_fused_cross_entropy(logits, targets));
    const LossPass found = pass(fused_cross_entropy, logits, targets);
    EXPECT_EQ(found.loss.scalar_type(), at::kDouble);
    expect_close(found, pass(plain, logits, targets), 1e-13, 1e-10);
  });
}

TEST(FusedCrossEntropy, IsExactInFloat32) {
  for_each_case([](const at::Tensor& logits, const ClassTargets& targets) {
    const at::Tensor x = logits.to(at::kFloat);
    const LossPass found = pass(fused_cross_entropy, x, targets);
    EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(found.gradient.scalar_type(), at::kFloat);
    expect_close(found, pass(plain, x.to(at::kDouble), targets), 2e-7, 1e-6);
  });
}

/// Only the gradient is rounded to bf16, half a unit in whose last place is up to 2^-8 of a value.
TEST(FusedCrossEntropy, IsExactToBf16sRounding) {
  for_each_case([](const at::Tensor& logits, const ClassTargets& targets) {
    const at::Tensor x = logits.to(at::kBFloat16);
    const LossPass found = pass(fused_cross_entropy, x, targets);
    EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(found.gradient.scalar_type(), at::kBFloat16);
    expect_close(found, pass(plain, x.to(at::kDouble), targets), 2e-7, 4e-3);
  });
}

TEST(FusedCrossEntropy, GradientIsThatOfDifferences) {
  at::manual_seed(3);
  for (const bool mixed : {false, true}) {
    const at::Tensor x = at::randn({4, 9}, at::kDouble).requires_grad_();
    const ClassTargets targets = targets_for(4, 9, mixed, 0.2);
    const auto loss = [&] { return fused_cross_entropy(x, targets); };
    loss().backward();
    const at::Tensor expected = numerical_gradient(loss, at::ones({}, at::kDouble), x.detach());
    EXPECT_LE(relative_error(x.grad(), expected), 1e-7);
  }
}

TEST(FusedCrossEntropy, TakesLogitsOfAnyLayout) {
  at::manual_seed(3);
  const ClassTargets targets = targets_for(6, 11, false, 0.1);
  const at::Tensor padded = at::randn({6, 16}), wide = at::randn({11, 6});
  const auto gradient_of = [&](const at::Tensor& base, const auto& view) {
    const at::Tensor x = base.clone().requires_grad_();
    fused_cross_entropy(view(x), targets).backward();
    return x.grad();
  };
  const auto narrow = [](const at::Tensor& x) { return x.narrow(1, 2, 11); };
  const at::Tensor of_narrow = gradient_of(padded, narrow);
  EXPECT_TRUE(at::allclose(narrow(of_narrow) * 3,
                           pass(fused_cross_entropy, narrow(padded), targets).gradient));
  EXPECT_EQ(of_narrow.narrow(1, 0, 2).abs().sum().item<float>(), 0);
  const auto turned = [](const at::Tensor& x) { return x.t(); };
  EXPECT_TRUE(at::allclose(turned(gradient_of(wide, turned)) * 3,
                           pass(fused_cross_entropy, wide.t().contiguous(), targets).gradient));
}

TEST(FusedCrossEntropy, WithoutLabelsLossAndGradientAreZero) {
  ClassTargets targets;
  targets.labels = at::full({3}, kIgnored, at::kLong);
  at::Tensor logits = at::randn({3, 5});
  logits[1][2] = NAN;
  const LossPass found = pass(fused_cross_entropy, logits, targets);
  EXPECT_EQ(found.loss.item<float>(), 0);
  EXPECT_TRUE(found.gradient.equal(at::zeros({3, 5})));
}

TEST(FusedCrossEntropy, AnIgnoredIndexMayBeAClass) {
  at::manual_seed(3);
  ClassTargets targets = targets_for(20, 4, false, 0.1);
  targets.ignore_index = 2;
  targets.labels.masked_fill_(targets.labels == kIgnored, 2);
  const at::Tensor logits = at::randn({20, 4}, at::kDouble);
  expect_close(pass(fused_cross_entropy, logits, targets), pass(plain, logits, targets), 1e-13,
               1e-10);
}

TEST(FusedCrossEntropy, ClassesRuledOutByInfinityHaveNoPart) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::Tensor logits = at::randn({2, 5000}).to(type);
    logits.narrow(1, 0, 2500).fill_(-kInfinity);  // more than the first block
    ClassTargets targets;
    targets.labels = at::tensor({2500L, 4999L}, at::kLong);
    const LossPass found = pass(fused_cross_entropy, logits, targets);
    const LossPass exact = pass(plain, logits.to(at::kDouble), targets);
    expect_close(found, exact, 1e-6, type == at::kBFloat16 ? 4e-3 : 1e-6);
    EXPECT_EQ(found.gradient.narrow(1, 0, 2500).abs().max().item<double>(), 0);
  }
}

TEST(FusedCrossEntropy, HidesNoNotANumber) {
  for (const double bad : {static_cast<double>(NAN), kInfinity}) {
    for (const int64_t column : {0, 20, 36}) {  // in a vector, and in what is left over
      at::Tensor logits = at::randn({2, 37});
      logits[1][column] = bad;
      ClassTargets targets;
      targets.labels = at::tensor({3L, 4L}, at::kLong);
      const LossPass found = pass(fused_cross_entropy, logits, targets);
      EXPECT_TRUE(found.loss.isnan().item<bool>());
      EXPECT_TRUE(found.gradient[0].isfinite().all().item<bool>());
      EXPECT_TRUE(found.gradient[1][column].isnan().item<bool>());
    }
  }
  ClassTargets targets;
  targets.labels = at::tensor({3L}, at::kLong);
  const at::Tensor lowest = at::full({1, 37}, -kInfinity, at::kFloat);
  EXPECT_TRUE(fused_cross_entropy(lowest, targets).isnan().item<bool>());
}

TEST(FusedCrossEntropy, ALabelThatIsNoClassIsNamedWithItsRow) {
  for (const int64_t wrong : {int64_t{5}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    ClassTargets targets = targets_for(4, 5, true, 0.0);
    for (at::Tensor* labels : {&targets.labels, &targets.partner_labels}) {
      const at::Tensor kept = labels->clone();
      (*labels)[3] = wrong;
      try {
        fused_cross_entropy(at::randn({4, 5}), targets);
        FAIL() << "label " << wrong << " was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Exit::kData);
        EXPECT_THAT(error.what(),
                    testing::HasSubstr(fmt::format("from 0 to 4 for 5 classes, found {} in row 3 "
                                                   "of 4",
                                                   wrong)));
      }
      *labels = kept;
    }
  }
}

TEST(FusedCrossEntropy, AnyNumberOfThreadsGivesTheSameBits) {
  const int before = at::get_num_threads();
  at::manual_seed(2);
  const at::Tensor logits = at::randn({300, 1000}).to(at::kBFloat16);
  const ClassTargets targets = targets_for(300, 1000, false, 0.1);
  at::set_num_threads(1);
  const LossPass one = pass(fused_cross_entropy, logits, targets);
  at::set_num_threads(3);
  const LossPass three = pass(fused_cross_entropy, logits, targets);
  at::set_num_threads(before);
  EXPECT_TRUE(three.loss.equal(one.loss));
  EXPECT_TRUE(three.gradient.equal(one.gradient));
}

TEST(FusedCrossEntropy, EveryInstructionSetGivesTheSame) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4001}) * 20;
  const at::Tensor wide = x.to(at::kDouble), softmax = wide.softmax(0);
  for (const loops::Isa isa : loops::kAllIsas) {
    if (!loops::is_available(isa)) continue;
    const auto& loop = loops::cross_entropy_table(isa).of_float;
    const auto sums = loop.sums(x.const_data_ptr<float>(), 4001);
    EXPECT_EQ(sums.highest, x.max().item<float>());
    EXPECT_NEAR(sums.values, wide.sum().item<double>(), 1e-2);
    const double exact = (wide - wide.max()).exp().sum().item<double>();
    EXPECT_NEAR(sums.exponentials, exact, 1e-6 * exact);
    at::Tensor gradient = at::empty_like(x);
    loop.gradient(x.const_data_ptr<float>(), 4001, sums.highest,
                  static_cast<float>(2 / sums.exponentials), 0.25F,
                  gradient.mutable_data_ptr<float>());
    EXPECT_LE(relative_error(gradient, 2 * softmax - 0.25), 1e-6);
  }
}

TEST(FusedCrossEntropy, ItsGradientHasNone) {
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const at::Tensor loss = fused_cross_entropy(x, targets_for(3, 4, false, 0.0));
  EXPECT_THROW(torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST(FusedCrossEntropy, StandsBackWhereItDoesNotApply) {
  const ClassTargets targets = targets_for(3, 4, false, 0.0);
  EXPECT_TRUE(has_fused_cross_entropy(at::randn({3, 4}), targets));
  EXPECT_FALSE(has_fused_cross_entropy(at::randn({2, 4}), targets));
  EXPECT_FALSE(has_fused_cross_entropy(at::randn({3, 4}).to(at::kHalf), targets));
  EXPECT_FALSE(has_fused_cross_entropy(at::randn({3, 4, 2}), targets));
  EXPECT_FALSE(has_fused_cross_entropy(at::randn({0, 4}), targets_for(0, 4, false, 0.0)));
  ClassTargets soft = targets;
  soft.labels = at::rand({3, 4});
  EXPECT_FALSE(has_fused_cross_entropy(at::randn({3, 4}), soft));
}

}  // namespace
}  // namespace brim::nn
