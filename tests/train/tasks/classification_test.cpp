// The loss on mixed labels is that on soft targets; what is told beside losses and evaluation sums.
#include "framework/train/tasks/classification.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace brim::train {
namespace {

constexpr int64_t kClasses = 7;

/// Cross-entropy of probabilities as targets, smoothed as torch.nn.CrossEntropyLoss does.
at::Tensor on_soft_targets(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const at::Tensor smooth = targets * (1 - smoothing) + smoothing / kClasses;
  return -(smooth * logits.log_softmax(1)).sum(1).mean();
}

data::DeviceBatch batch(bool mixed) {
  data::DeviceBatch result;
  result.labels = at::tensor({0, 6, 3, 3, 5}, at::kLong);
  if (!mixed) return result;
  result.partner_labels = at::tensor({6, 0, 3, 3, 5}, at::kLong);
  result.label_shares = at::tensor({0.3F, 0.3F, 0.9F, 0.9F, 1.F});
  return result;
}

at::Tensor targets_of(const data::DeviceBatch& batch) {
  const at::Tensor own = at::one_hot(batch.labels, kClasses).to(at::kFloat);
  if (!batch.partner_labels.defined()) return own;
  const at::Tensor other = at::one_hot(batch.partner_labels, kClasses).to(at::kFloat);
  const at::Tensor share = batch.label_shares.unsqueeze(1);
  return share * own + (1 - share) * other;
}

TEST(ClassificationTest, LossOfMixedLabelsIsThatOfSoftTargets) {
  at::manual_seed(1);
  for (const auto& [mixed, fused] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    for (const double smoothing : {0.0, 0.1}) {
      const at::Tensor ours = at::randn({5, kClasses}).requires_grad_(true);
      const at::Tensor theirs = ours.detach().clone().requires_grad_(true);
      const at::Tensor loss = loss_of(ours, batch(mixed), smoothing, fused);
      const at::Tensor expected = on_soft_targets(theirs, targets_of(batch(mixed)), smoothing);
      EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 1e-6);
      // And as LibTorch computes it from probabilities.
      const at::Tensor soft =
          at::cross_entropy_loss(theirs, targets_of(batch(mixed)), {}, at::Reduction::Mean,
                                 /*ignore_index=*/-100, smoothing);
      EXPECT_NEAR(loss.item<float>(), soft.item<float>(), 1e-6);
      loss.backward();
      expected.backward();
      EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-5, 1e-7));
    }
  }
}

/// Gives its inputs, [N, kClasses], as logits, and half of them by an auxiliary head.
class Echo final : public nn::Model {
 public:
  Echo() { weight_ = register_parameter("weight", at::ones({})); }
  at::Tensor forward(const at::Tensor& inputs) override { return inputs * weight_; }
  std::vector<nn::WeightedLogits> training_logits(const at::Tensor& inputs) override {
    return {{forward(inputs), 1.0}, {forward(inputs) / 2, 0.4}};
  }

 private:
  at::Tensor weight_;
};

TEST(ClassificationTest, TheUnsmoothedLossIsThatOfATaskWithoutSmoothing) {
  at::manual_seed(2);
  Echo model;
  const at::Tensor inputs = at::randn({5, kClasses});
  for (const bool mixed : {false, true}) {
    for (const bool fused : {false, true}) {
      nn::use_fused(model, fused ? nn::Fused::kAlways : nn::Fused::kNever);
      data::DeviceBatch of = batch(mixed);
      of.inputs = inputs;
      const Classification smooth(0.3, kClasses), plain(0.0, kClasses);
      const Losses losses = smooth.losses(model, of);
      EXPECT_TRUE(at::equal(losses.loss, smooth.loss(model, of)));
      EXPECT_NEAR(losses.unsmoothed.item<float>(), plain.loss(model, of).item<float>(), 1e-6);
      EXPECT_FALSE(losses.unsmoothed.requires_grad());
      EXPECT_FALSE(plain.losses(model, of).unsmoothed.defined());
    }
  }
}

TEST(ClassificationTest, ARankWithoutSamplesHasAnUnsmoothedLossOfZero) {
  Echo model;
  data::DeviceBatch none;
  none.inputs = at::zeros({0, kClasses});
  none.labels = at::zeros({0}, at::kLong);
  const Losses losses = Classification(0.3, kClasses).losses(model, none);
  EXPECT_EQ(losses.loss.item<float>(), 0);
  EXPECT_EQ(losses.unsmoothed.item<float>(), 0);
}

TEST(ClassificationTest, GuessesAreThoseOfTheSoftmax) {
  at::manual_seed(3);
  Echo model;
  const at::NoGradGuard no_grad;
  data::DeviceBatch of = batch(/*mixed=*/false);
  of.inputs = at::randn({5, kClasses});
  of.labels[1].fill_(data::kNoLabel);
  const Classification task(0.1, kClasses);  // smoothing has no part in an evaluation
  const Evaluated result = task.evaluate(model, of);
  EXPECT_TRUE(at::equal(result.sums, task.evaluation_sums(model, of)));
  const auto [probabilities, classes] = of.inputs.softmax(1).max(1);
  EXPECT_TRUE(at::equal(result.guesses->labels, of.labels));
  EXPECT_TRUE(at::equal(result.guesses->classes, classes));
  EXPECT_TRUE(at::allclose(result.guesses->probabilities, probabilities));
  const at::Tensor losses =
      at::cross_entropy_loss(of.inputs, of.labels, {}, at::Reduction::None, data::kNoLabel);
  for (const int64_t i : {0, 2, 3, 4}) {
    EXPECT_NEAR(result.guesses->losses[i].item<float>(), losses[i].item<float>(), 1e-6);
  }
  const at::Tensor sum =
      at::cross_entropy_loss(of.inputs, of.labels, {}, at::Reduction::Sum, data::kNoLabel);
  EXPECT_EQ(result.sums[0].item<double>(), sum.item<double>());
}

}  // namespace
}  // namespace brim::train
