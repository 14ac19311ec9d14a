#include "framework/train/inference/next_logits.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/nn/stage.h"

namespace brim::train {
namespace {

/// Texts in rows of one length, `least` or more, those of shorter ones filled up with 0: what
/// follows a token doesn't change what is said about it.
at::Tensor in_rows(const std::vector<Text>& texts, int64_t least = 0) {
  auto longest = static_cast<size_t>(least);
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

/// What the model makes of `inputs`, on its last stage; undefined on the others.
at::Tensor through_stages(const RankModel& model, const at::Tensor& inputs) {
  distributed::Pipeline& pipeline = *model.pipeline;
  auto& stage = dynamic_cast<nn::Stage&>(*model.module);
  stage.whole().begin(inputs);
  at::Tensor x = inputs;
  if (!pipeline.is_first()) {
    x = pipeline.inputs().empty(inputs.size(0), model.device);
    pipeline.receive_activations(x).wait();
  }
  const at::Tensor made = stage.forward(x);
  if (pipeline.is_last()) return made;
  const at::Tensor message = pipeline.outputs().pack(made);
  pipeline.send_activations(message).wait();
  return {};
}

/// The last stage's logits [texts, V], on the CPU of all.
at::Tensor from_last_stage(distributed::Pipeline& pipeline, at::Tensor logits, size_t texts) {
  constexpr const char* kWhat = "the logits of the next token";
  const at::Tensor width = at::full({1}, logits.defined() ? logits.size(1) : 0, at::kLong);
  pipeline.line().broadcast(width, kWhat, pipeline.stages() - 1);
  if (!logits.defined())
    logits = at::empty({static_cast<int64_t>(texts), width.item<int64_t>()}, at::kFloat);
  pipeline.line().broadcast(logits, kWhat, pipeline.stages() - 1);
  return logits;
}

}  // namespace

Text window_of(Text text, int64_t length) {
  const auto most = static_cast<size_t>(length);
  if (text.size() <= most) return text;
  const size_t move = std::max<size_t>(1, most / 2);
  return text.subspan((text.size() - most + move - 1) / move * move);
}

NextLogits::NextLogits(const RankModel& model, size_t texts, int64_t longest)
    : model_(model),
      autocast_(model.device.type(), model.precision),
      decoder_(dynamic_cast<nn::IncrementalDecoder*>(model.module.get())) {
  if (decoder_ == nullptr) return;
  cache_.emplace(static_cast<int64_t>(texts), std::min(longest, model.input.length));
}

at::Tensor NextLogits::operator()(const std::vector<Text>& texts) {
  std::vector<Text> windows;
  for (const Text text : texts) windows.push_back(window_of(text, model_.input.length));
  at::Tensor logits = cache_ ? continued(windows) : recomputed(windows);
  if (logits.defined()) logits = logits.to(at::kFloat).cpu().contiguous();
  if (!model_.pipeline) return logits;
  return from_last_stage(*model_.pipeline, std::move(logits), texts.size());
}

at::Tensor NextLogits::recomputed(const std::vector<Text>& windows) {
  // What stages send each other is of the data's length.
  const int64_t least = model_.pipeline ? model_.input.length : 0;
  at::Tensor rows = in_rows(windows, least).to(model_.device);
  if (model_.input.has_documents) rows = as_documents(rows);
  const at::Tensor logits =
      model_.pipeline ? through_stages(model_, rows) : model_.module->forward(rows);
  if (!logits.defined()) return {};
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
    decoder_->forward_next(in_rows({before}).to(model_.device), *cache_, row);
  }
  return decoder_->forward_next(in_rows(last).to(model_.device), *cache_, 0);
}

void NextLogits::remove(size_t index, size_t texts) {
  if (cache_ && index + 1 < texts) {
    cache_->copy_row(static_cast<int64_t>(texts) - 1, static_cast<int64_t>(index));
  }
}

}  // namespace brim::train
