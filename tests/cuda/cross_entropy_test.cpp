// The GPU's fused cross-entropy against the CPU's.
#include "framework/nn/fused/cross_entropy.h"

#include <ATen/ATen.h>

#include <vector>

#include "framework/nn/fused/aligned_linear.h"
#include "framework/nn/fused/linear_cross_entropy.h"
#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

struct LossPass {
  at::Tensor loss, gradient;
};

LossPass pass(c10::Device device, const at::Tensor& logits, nn::ClassTargets targets) {
  for (at::Tensor* t : {&targets.labels, &targets.partner_labels, &targets.label_shares}) {
    if (t->defined()) *t = t->to(device);
  }
  const at::Tensor x = logits.detach().clone().to(device).requires_grad_();
  const at::Tensor loss = nn::fused_cross_entropy(x, targets);
  (loss * 3).backward();
  return {loss.detach().cpu().to(at::kDouble), x.grad().cpu().to(at::kDouble)};
}

nn::ClassTargets targets_for(int64_t rows, int64_t classes, bool mixed) {
  nn::ClassTargets targets;
  targets.labels = at::randint(classes, {rows}, at::kLong);
  targets.labels[rows / 2] = targets.ignore_index;
  targets.smoothing = mixed ? 0.1 : 0.0;
  if (!mixed) return targets;
  targets.partner_labels = at::randint(classes, {rows}, at::kLong);
  targets.label_shares = at::rand({rows});
  return targets;
}

TEST_F(Gpu, CrossEntropyIsTheCpus) {
  at::manual_seed(3);
  // A warp or a block a row, in packs and not.
  for (const auto& [rows, classes] :
       {std::pair<int64_t, int64_t>{3, 10}, {300, 1000}, {65, 1001}, {17, 5008}, {9, 50257}}) {
    for (const bool mixed : {false, true}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const at::Tensor logits = (at::randn({rows, classes}) * 5).to(type);
        const nn::ClassTargets targets = targets_for(rows, classes, mixed);
        // float16 is the GPU's alone: float32 on the CPU is its reference.
        const LossPass expected =
            pass(at::kCPU, type == at::kHalf ? logits.to(at::kFloat) : logits, targets);
        const LossPass found = pass(at::kCUDA, logits, targets);
        EXPECT_NEAR(found.loss.item<double>(), expected.loss.item<double>(), 1e-5);
        const double tolerance = type == at::kDouble ? 1e-10 : type == at::kFloat ? 1e-5 : 4e-3;
        EXPECT_LE((found.gradient - expected.gradient).norm().item<double>(),
                  tolerance * expected.gradient.norm().item<double>())
            << rows << " x " << classes << " " << type;
      }
    }
  }
}

TEST_F(Gpu, CrossEntropyOfRowsWithoutLabelsIsZero) {
  nn::ClassTargets targets;
  targets.labels = at::full({4}, targets.ignore_index, at::kLong);
  const LossPass found = pass(at::kCUDA, at::randn({4, 2000}), targets);
  EXPECT_EQ(found.loss.item<double>(), 0);
  EXPECT_EQ(found.gradient.abs().max().item<double>(), 0);
}

/// By way of logits whose rows begin on 128 bytes; in another order of sums than LibTorch's.
TEST_F(Gpu, AnOutputLayersLossIsLibTorchs) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({300, 64}).cuda(), weight = at::randn({5003, 64}).cuda();
  const at::Tensor labels = at::randint(5003, {300}, at::kLong).cuda();
  ASSERT_TRUE(nn::has_aligned_linear(x, weight, {}));
  const auto pass = [&](nn::Fused when) {
    const at::Tensor in = x.clone().requires_grad_(), of = weight.clone().requires_grad_();
    const at::Tensor loss = nn::linear_cross_entropy(in, of, labels, -100, when, true);
    loss.backward();
    return std::vector<at::Tensor>{loss.detach(), in.grad(), of.grad()};
  };
  const auto expected = pass(nn::Fused::kNever), found = pass(nn::Fused::kUsual);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LE((found[i] - expected[i]).norm().item<double>(),
              1e-5 * expected[i].norm().item<double>())
        << i;
  }
}

}  // namespace
}  // namespace brim::cuda
