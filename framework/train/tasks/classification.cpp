#include "framework/train/tasks/classification.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/nn/fused/cross_entropy.h"

namespace brim::train {

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
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, reduction, data::kNoLabel,
                                  label_smoothing);
  };
  if (!batch.partner_labels.defined()) return cross_entropy(batch.labels, at::Reduction::Mean);
  // Cross-entropy is linear in the target, so this is its value for the mixed one.
  const at::Tensor own = cross_entropy(batch.labels, at::Reduction::None);
  const at::Tensor other = cross_entropy(batch.partner_labels, at::Reduction::None);
  return (batch.label_shares * own + (1 - batch.label_shares) * other).mean();
}

at::Tensor Classification::loss(nn::Model& model, const data::DeviceBatch& batch) const {
  at::Tensor loss;
  for (const auto& [logits, weight] : model.training_logits(batch.inputs)) {
    const at::Tensor part = batch.labels.numel() == 0
                                ? logits.sum()
                                : loss_of(logits, batch, label_smoothing_, model.is_fused());
    loss = loss.defined() ? loss + weight * part : part;
  }
  return loss;
}

at::Tensor Classification::evaluation_sums(nn::Model& model, const data::DeviceBatch& batch) const {
  const at::Tensor logits = model.forward(batch.inputs).to(at::kFloat);  // [N, classes]
  const at::Tensor loss = at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum);
  const int64_t k = std::min<int64_t>(5, logits.size(1));
  const at::Tensor hits = std::get<1>(logits.topk(k, 1)) == batch.labels.unsqueeze(1);  // [N, k]
  const at::Tensor labelled = batch.labels >= 0;  // a sample that can't be read has no label
  return at::stack({loss.to(at::kDouble), hits.slice(1, 0, 1).sum().to(at::kDouble),
                    hits.sum().to(at::kDouble), labelled.sum().to(at::kDouble)});
}

Metrics Classification::metrics(const at::Tensor& sums) const {
  const double* sum = sums.const_data_ptr<double>();
  const double count = sum[3];
  Metrics metrics = {{"loss", sum[0] / count}, {"top1", 100.0 * sum[1] / count}};
  if (classes_ > 5) metrics.emplace_back("top5", 100.0 * sum[2] / count);
  return metrics;
}

}  // namespace brim::train
