#include "framework/train/tasks/language_modeling.h"

#include <ATen/ATen.h>

#include <cmath>

#include "framework/nn/fused/cross_entropy.h"

namespace brim::train {
namespace {

/// [N, T, V] to [N · T, V]: a row for each label.
at::Tensor rows(const at::Tensor& logits) { return logits.flatten(0, 1); }

/// Mean over the labels that are there, of logits [N, T, V].
at::Tensor loss_of_tokens(const at::Tensor& logits, const data::DeviceBatch& batch,
                          double smoothing, bool fused) {
  if (batch.labels.numel() == 0) return logits.sum();
  return nn::mean_cross_entropy(rows(logits), batch.labels.flatten(), data::kNoLabel, smoothing,
                                fused);
}

}  // namespace

void LanguageModelingConfig::fields(recipe::Fields& f) {
  f.value(
      "prompt", sample.text,
      "text that the model continues with after each evaluation, for people to read; empty: none");
  f.value("prompt_tokens", sample.max_tokens, "max number of tokens to generate",
          recipe::between(1, 1 << 20));
}

at::Tensor LanguageModeling::loss(nn::Model& model, const data::DeviceBatch& batch) const {
  if (model.is_fused() && label_smoothing_ == 0 && batch.labels.numel() > 0) {
    const at::Tensor loss = model.token_loss(batch.inputs, batch.labels, data::kNoLabel);
    if (loss.defined()) return loss;
  }
  return loss_of_tokens(model.forward(batch.inputs), batch, label_smoothing_, model.is_fused());
}

Losses LanguageModeling::losses(nn::Model& model, const data::DeviceBatch& batch) const {
  if (label_smoothing_ == 0) return {.loss = loss(model, batch)};
  const at::Tensor logits = model.forward(batch.inputs);
  Losses result = {.loss = loss_of_tokens(logits, batch, label_smoothing_, model.is_fused())};
  const at::NoGradGuard no_grad;
  // Fused, it reads the logits once and keeps nothing.
  result.unsmoothed = loss_of_tokens(logits.detach(), batch, /*smoothing=*/0.0, /*fused=*/true);
  return result;
}

at::Tensor LanguageModeling::evaluation_sums(nn::Model& model,
                                             const data::DeviceBatch& batch) const {
  const at::Tensor logits = rows(model.forward(batch.inputs)).to(at::kFloat);
  const at::Tensor labels = batch.labels.flatten();
  const at::Tensor loss =
      at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, data::kNoLabel);
  const at::Tensor hits = logits.argmax(1) == labels;
  return at::stack({loss.to(at::kDouble), hits.sum().to(at::kDouble),
                    (labels != data::kNoLabel).sum().to(at::kDouble)});
}

Metrics LanguageModeling::metrics(const at::Tensor& sums) const {
  const double* sum = sums.const_data_ptr<double>();
  const double loss = sum[0] / sum[2];
  return {{"loss", loss}, {"perplexity", std::exp(loss)}, {"top1", 100.0 * sum[1] / sum[2]}};
}

}  // namespace brim::train
