// The loss and metrics of a language model: what counts, and what doesn't.
#include "framework/train/tasks/language_modeling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <vector>

namespace brim::train {
namespace {

constexpr int64_t kVocabulary = 5;

/// Gives logits that only depend on the token that it sees.
class Table : public nn::Model {
 public:
  Table() {
    at::manual_seed(1);
    table_ = register_parameter("table", at::randn({kVocabulary, kVocabulary}));
  }
  at::Tensor forward(const at::Tensor& inputs) override { return at::embedding(table_, inputs); }
  at::Tensor log_probabilities() const { return table_.detach().log_softmax(1); }
  at::Tensor gradient() const { return table_.grad(); }

 private:
  at::Tensor table_;
};

data::DeviceBatch batch() {
  constexpr int64_t kNone = data::kNoLabel;
  data::DeviceBatch result;
  result.inputs = at::tensor(std::vector<int64_t>{0, 3, 1, 2, 4, 4}).view({2, 3});
  result.labels = at::tensor(std::vector<int64_t>{3, kNone, 2, 4, kNone, kNone}).view({2, 3});
  return result;
}

/// Of the three tokens that are predicted: 0 → 3, 1 → 2, 2 → 4.
double loss_by_hand(const Table& model) {
  const at::Tensor table = model.log_probabilities();
  const auto value = [&](int64_t seen, int64_t next) { return table[seen][next].item<double>(); };
  return -(value(0, 3) + value(1, 2) + value(2, 4)) / 3;
}

TEST(LanguageModelingTest, TheLossIsTheMeanOverTokensThatHaveANext) {
  Table model;
  const LanguageModeling task(0.0);
  EXPECT_NEAR(task.loss(model, batch()).item<double>(), loss_by_hand(model), 1e-6);
}

TEST(LanguageModelingTest, TheFusedLossIsTheSame) {
  for (const double smoothing : {0.0, 0.1}) {
    const LanguageModeling task(smoothing);
    at::Tensor losses[2], gradients[2];
    for (const bool fused : {false, true}) {
      Table model;
      nn::use_fused(model, fused ? nn::Fused::kAlways : nn::Fused::kNever);
      losses[fused] = task.loss(model, batch());
      EXPECT_EQ(losses[fused].grad_fn()->name().find("FusedCrossEntropy") != std::string::npos,
                fused);
      losses[fused].backward();
      gradients[fused] = model.gradient();
    }
    EXPECT_NEAR(losses[1].item<double>(), losses[0].item<double>(), 1e-6);
    EXPECT_TRUE(at::allclose(gradients[1], gradients[0], 1e-5, 1e-7));
  }
}

/// Has a loss of its own, which says what it was asked for.
class WithTokenLoss final : public Table {
 public:
  at::Tensor token_loss(const at::Tensor& inputs, const at::Tensor& labels,
                        int64_t ignore_index) override {
    EXPECT_EQ(inputs.sizes(), labels.sizes());
    EXPECT_EQ(ignore_index, data::kNoLabel);
    return at::scalar_tensor(7.0);
  }
};

TEST(LanguageModelingTest, AModelsOwnLossIsTakenWhereItIsFusedAndNotSmoothed) {
  WithTokenLoss model;
  const auto takes_it = [&](double smoothing, const data::DeviceBatch& of) {
    const LanguageModeling task(smoothing);
    const double loss = task.loss(model, of).item<double>();
    EXPECT_EQ(task.losses(model, of).loss.item<double>(), loss);
    return loss == 7;
  };
  EXPECT_FALSE(takes_it(0.0, batch()));
  nn::use_fused(model, nn::Fused::kAlways);
  EXPECT_TRUE(takes_it(0.0, batch()));
  EXPECT_FALSE(takes_it(0.1, batch()));
  data::DeviceBatch empty;
  empty.inputs = at::zeros({0, 3}, at::kLong);
  empty.labels = at::zeros({0, 3}, at::kLong);
  EXPECT_FALSE(takes_it(0.0, empty));
}

TEST(LanguageModelingTest, TheUnsmoothedLossIsThatWithoutSmoothing) {
  for (const bool fused : {false, true}) {
    Table model;
    nn::use_fused(model, fused ? nn::Fused::kAlways : nn::Fused::kNever);
    const LanguageModeling task(0.3);
    const Losses losses = task.losses(model, batch());
    EXPECT_TRUE(at::equal(losses.loss, task.loss(model, batch())));
    EXPECT_NEAR(losses.unsmoothed.item<double>(), loss_by_hand(model), 1e-6);
    EXPECT_FALSE(losses.unsmoothed.requires_grad());
    EXPECT_FALSE(LanguageModeling(0.0).losses(model, batch()).unsmoothed.defined());
  }
}

TEST(LanguageModelingTest, WhereNothingIsPredictedLossAndGradientsAreZero) {
  Table model;
  Table fused_model;
  nn::use_fused(fused_model, nn::Fused::kAlways);
  const LanguageModeling task(0.0);
  data::DeviceBatch none = batch();
  none.labels.fill_(data::kNoLabel);
  data::DeviceBatch empty;
  empty.inputs = at::zeros({0, 3}, at::kLong);
  empty.labels = at::zeros({0, 3}, at::kLong);
  for (const data::DeviceBatch& of : {none, empty}) {
    for (Table* by : {&model, &fused_model}) {
      const at::Tensor loss = task.loss(*by, of);
      EXPECT_EQ(loss.item<double>(), 0);
      loss.backward();
      EXPECT_EQ(by->gradient().abs().max().item<double>(), 0);
    }
  }
}

TEST(LanguageModelingTest, FiguresOfAllBatchesTogether) {
  Table model;
  const LanguageModeling task(0.1);  // has no part in an evaluation
  const at::NoGradGuard no_grad;
  const at::Tensor sums = task.evaluation_sums(model, batch());
  EXPECT_EQ(sums.scalar_type(), at::kDouble);
  const Metrics metrics = task.metrics(sums + sums);
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_EQ(metrics[0].first, "loss");
  EXPECT_NEAR(metrics[0].second, loss_by_hand(model), 1e-6);
  EXPECT_EQ(metrics[1].first, "perplexity");
  EXPECT_NEAR(metrics[1].second, std::exp(loss_by_hand(model)), 1e-5);
  const at::Tensor guesses = model.log_probabilities().argmax(1);
  const int hits = (guesses[0].item<int64_t>() == 3) + (guesses[1].item<int64_t>() == 2) +
                   (guesses[2].item<int64_t>() == 4);
  EXPECT_EQ(metrics[2].first, "top1");
  EXPECT_NEAR(metrics[2].second, 100.0 * hits / 3, 1e-9);
}

TEST(LanguageModelingTest, TheBestIsTheLowestLoss) {
  const BestBy best_by = LanguageModeling(0.0).best_by();
  EXPECT_EQ(best_by.metric, "loss");
  EXPECT_TRUE(best_by.is_better({1.0, 1.0}, {2.0, 2.0}));
  EXPECT_FALSE(best_by.is_better({2.0, 2.0}, {2.0, 2.0}));
}

}  // namespace
}  // namespace brim::train
