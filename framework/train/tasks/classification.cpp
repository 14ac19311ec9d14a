#include "framework/train/tasks/classification.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/nn/fused/cross_entropy.h"

namespace brim::train {
namespace {

/// A model of one's own may give something else.
void require_logits(const at::Tensor& logits, const data::DeviceBatch& batch, int64_t classes) {
  const int64_t samples = batch.inputs.size(0);
  if (logits.dim() == 2 && logits.size(0) == samples && logits.size(1) == classes) return;
  throw Error(Exit::kRecipe,
              "the model gives [{}] for {} images: expected [{}, {}], a value for each of the "
              "data's classes",
              fmt::join(logits.sizes(), ", "), samples, samples, classes);
}

}  // namespace

at::Tensor loss_of(const at::Tensor& logits, const data::DeviceBatch& batch, double label_smoothing,
                   bool fused) {
  const nn::ClassTargets targets = {.labels = batch.labels,
                                    .partner_labels = batch.partner_labels,
                                    .label_shares = batch.label_shares,
                                    .ignore_index = data::kNoLabel,
                                    .smoothing = label_smoothing};
  if (fused && nn::has_fused_cross_entropy(logits, targets)) {
    return nn::fused_cross_entropy(logits, targets);
  }
  const auto cross_entropy = [&](const at::Tensor& labels, at::Reduction::Reduction reduction) {
    return nn::plain_cross_entropy(logits, labels, reduction, data::kNoLabel, label_smoothing);
  };
  if (!batch.partner_labels.defined()) return cross_entropy(batch.labels, at::Reduction::Mean);
  // Cross-entropy is linear in the target, so this is its value for the mixed one.
  const at::Tensor own = cross_entropy(batch.labels, at::Reduction::None);
  const at::Tensor other = cross_entropy(batch.partner_labels, at::Reduction::None);
  return (batch.label_shares * own + (1 - batch.label_shares) * other).mean();
}

Losses Classification::losses_of(nn::Model& model, const data::DeviceBatch& batch,
                                 bool has_unsmoothed) const {
  const auto mean_of = [&](const at::Tensor& logits, double smoothing, bool fused) {
    return batch.labels.numel() == 0 ? logits.sum() : loss_of(logits, batch, smoothing, fused);
  };
  Losses sum;
  for (const auto& [logits, weight] : model.training_logits(batch.inputs)) {
    require_logits(logits, batch, classes_);
    const at::Tensor part = mean_of(logits, label_smoothing_, model.is_fused());
    sum.loss = sum.loss.defined() ? sum.loss + weight * part : part;
    if (!has_unsmoothed) continue;
    const at::NoGradGuard no_grad;
    // Fused, it reads the logits once and keeps nothing.
    const at::Tensor plain = mean_of(logits.detach(), /*smoothing=*/0.0, /*fused=*/true);
    sum.unsmoothed = sum.unsmoothed.defined() ? sum.unsmoothed + weight * plain : plain;
  }
  return sum;
}

at::Tensor Classification::loss(nn::Model& model, const data::DeviceBatch& batch) const {
  return losses_of(model, batch, /*has_unsmoothed=*/false).loss;
}

Losses Classification::losses(nn::Model& model, const data::DeviceBatch& batch) const {
  return losses_of(model, batch, /*has_unsmoothed=*/label_smoothing_ > 0);
}

Evaluated Classification::evaluate(nn::Model& model, const data::DeviceBatch& batch) const {
  const at::Tensor logits = model.forward(batch.inputs).to(at::kFloat);  // [N, classes]
  require_logits(logits, batch, classes_);
  const at::Tensor logs = logits.log_softmax(1);
  const at::Tensor loss = at::nll_loss(logs, batch.labels, {}, at::Reduction::Sum, data::kNoLabel);
  const int64_t k = std::min<int64_t>(5, logits.size(1));
  const at::Tensor best = std::get<1>(logits.topk(k, 1));           // [N, k]
  const at::Tensor hits = best == batch.labels.unsqueeze(1);        // [N, k]
  const at::Tensor labelled = (batch.labels >= 0).to(at::kDouble);  // none: it can't be read
  const at::Tensor hit = hits.select(1, 0);
  const at::Tensor sums = at::stack({loss.to(at::kDouble), hit.sum().to(at::kDouble),
                                     hits.sum().to(at::kDouble), labelled.sum()});
  const at::Tensor first = best.select(1, 0);  // [N]
  const at::Tensor known = batch.labels.clamp_min(0);
  const at::Tensor place =
      known * row() + (has_confusion() ? first.clamp_max(classes_ - 1) : hit.to(at::kLong));
  const at::Tensor rows =
      at::zeros({classes_ * row()}, labelled.options()).index_add_(0, place, labelled);
  const auto log_of = [&](const at::Tensor& classes) {
    return logs.gather(1, classes.unsqueeze(1)).squeeze(1);
  };
  return {.sums = at::cat({sums, rows}),
          .guesses = Guesses{.labels = batch.labels,
                             .classes = first,
                             .probabilities = log_of(first).exp(),
                             .losses = -log_of(known)}};
}

Metrics Classification::metrics(const at::Tensor& sums) const {
  const double* sum = sums.const_data_ptr<double>();
  const double count = sum[3];
  Metrics metrics = {{"loss", sum[0] / count}, {"top1", 100.0 * sum[1] / count}};
  if (classes_ > 5) metrics.emplace_back("top5", 100.0 * sum[2] / count);
  return metrics;
}

std::vector<ClassResult> Classification::by_class(const at::Tensor& sums) const {
  const at::Tensor rows = sums.narrow(0, sums.numel() - classes_ * row(), classes_ * row())
                              .to(at::kLong)
                              .view({classes_, row()});
  const auto counts = rows.accessor<int64_t, 2>();
  std::vector<ClassResult> results(static_cast<size_t>(classes_));
  for (int64_t label = 0; label < classes_; ++label) {
    ClassResult& result = results[static_cast<size_t>(label)];
    for (int64_t i = 0; i < row(); ++i) result.samples += counts[label][i];
    result.correct = counts[label][has_confusion() ? label : 1];
    if (!has_confusion()) continue;
    for (int64_t i = 0; i < row(); ++i) result.taken_for.push_back(counts[label][i]);
  }
  return results;
}

}  // namespace brim::train
