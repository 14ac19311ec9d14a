// The loss on mixed labels is that on soft targets.
#include "framework/train/tasks/classification.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace brim::train
