#include "framework/train/inference/next_logits.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace brim::train {
namespace {

/// Texts in rows of one length, those of shorter ones filled up with 0: what follows a token
/// doesn't change what is said about it.
at::Tensor in_rows(const std::vector<Text>& texts) {
  size_t longest = 0;
  for (const Text text : texts) longest = std::max(longest, text.size());
  const at::Tensor rows = at::zeros({std::ssize(texts), static_cast<int64_t>(longest)}, at::kLong);
  for (int64_t i = 0; i < std::ssize(texts); ++i) {
    std::ranges::copy(texts[static_cast<size_t>(i)], rows[i].data_ptr<int64_t>());
  }
  return rows;
}

/// For models that take documents: each row is one.
at::Tensor as_documents(const at::Tensor& rows) {
  const at::Tensor positions = at::arange(rows.size(1), rows.options()).expand_as(rows);
  return at::stack({rows, positions, at::ones_like(rows)}, 1);
}

}  // namespace

Text window_of(Text text, int64_t length) {
  const auto most = static_cast<size_t>(length);
  if (text.size() <= most) return text;
  const size_t move = std::max<size_t>(1, most / 2);
  return text.subspan((text.size() - most + move - 1) / move * move);
}

NextLogits::NextLogits(TrainingComponents& components, size_t texts, int64_t longest)
    : components_(components),
      autocast_(components.device.type(), components.precision),
      decoder_(dynamic_cast<nn::IncrementalDecoder*>(components.model.get())) {
  if (decoder_ == nullptr) return;
  cache_.emplace(static_cast<int64_t>(texts), std::min(longest, components.input.length));
}

at::Tensor NextLogits::operator()(const std::vector<Text>& texts) {
  std::vector<Text> windows;
  for (const Text text : texts) windows.push_back(window_of(text, components_.input.length));
  return (cache_ ? continued(windows) : recomputed(windows)).to(at::kFloat).cpu().contiguous();
}

at::Tensor NextLogits::recomputed(const std::vector<Text>& windows) {
  at::Tensor rows = in_rows(windows).to(components_.device);
  if (components_.input.has_documents) rows = as_documents(rows);
  const at::Tensor logits = components_.model->forward(rows);  // [texts, T, V]
  std::vector<int64_t> last;
  for (const Text window : windows) last.push_back(std::ssize(window) - 1);
  const at::Tensor index = at::tensor(last, at::kLong).to(logits.device()).view({-1, 1, 1});
  return logits.gather(1, index.expand({-1, 1, logits.size(2)})).squeeze(1);
}

at::Tensor NextLogits::continued(const std::vector<Text>& windows) {
  std::vector<Text> last;
  for (int64_t row = 0; row < std::ssize(windows); ++row) {
    const Text window = windows[static_cast<size_t>(row)];
    last.push_back(window.last(1));
    if (cache_->length(row) == std::ssize(window) - 1) continue;
    cache_->clear(row);  // it is new, or its window begins elsewhere
    const Text before = window.first(window.size() - 1);
    if (before.empty()) continue;
    decoder_->forward_next(in_rows({before}).to(components_.device), *cache_, row);
  }
  return decoder_->forward_next(in_rows(last).to(components_.device), *cache_, 0);
}

void NextLogits::remove(size_t index, size_t texts) {
  if (cache_ && index + 1 < texts) {
    cache_->copy_row(static_cast<int64_t>(texts) - 1, static_cast<int64_t>(index));
  }
}

}  // namespace brim::train
