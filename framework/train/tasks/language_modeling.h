// Language modelling: cross-entropy of the next token, and perplexity.
#pragma once

#include "framework/train/tasks/task.h"

namespace brim::train {

class LanguageModeling final : public Task {
 public:
  explicit LanguageModeling(double label_smoothing) : label_smoothing_(label_smoothing) {}

  /// Mean over the tokens that have one to predict, spread over all of the model's vocabulary by
  /// label_smoothing.
  at::Tensor loss(nn::Model& model, const data::DeviceBatch& batch) const override;
  Losses losses(nn::Model& model, const data::DeviceBatch& batch) const override;
  /// [cross-entropy without smoothing, right first guesses, tokens predicted]
  at::Tensor evaluation_sums(nn::Model& model, const data::DeviceBatch& batch) const override;
  /// "loss" in nats a token, "perplexity" (its exponential), "top1" in percent.
  Metrics metrics(const at::Tensor& sums) const override;
  BestBy best_by() const override { return {"loss", /*is_lower=*/true}; }

 private:
  double label_smoothing_;
};

struct LanguageModelingConfig final : TaskConfig {
  Prompt sample = {.text = "", .max_tokens = 100};

  void fields(recipe::Fields& f) override;
  bool takes(nn::InputKind kind) const override { return kind == nn::InputKind::kTokens; }
  std::unique_ptr<Task> build(const TaskOptions& options) const override {
    return std::make_unique<LanguageModeling>(options.label_smoothing);
  }
  Prompt prompt() const override { return sample; }
};

}  // namespace brim::train
