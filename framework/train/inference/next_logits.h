// What a language model says of the next token of some texts, which grow by a token at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/nn/key_value_cache.h"
#include "framework/train/rank_model.h"

namespace brim::train {

using Text = std::span<const int32_t>;  // token ids

/// What a model that takes `length` tokens at a time sees of a text: all of it, or where it is
/// longer, its end. The end's beginning moves by half a length at a time, as moving it gives every
/// token another position, and all of them must be recomputed.
Text window_of(Text text, int64_t length);

/// Where the model is an nn::IncrementalDecoder, a token costs a pass over one position, by a cache
/// of keys and values; else, or where the window's beginning has moved, one over the whole window.
/// The stages of a pipeline take such a pass together, over the data's length.
class NextLogits {
 public:
  /// `model` takes tokens and is in evaluation mode. Memory is for so many
  /// texts, of which the model sees at most `longest` tokens. Gradients are off, and weights stay
  /// as they are while this lives: what autocast makes of them is kept.
  NextLogits(const RankModel& model, size_t texts, int64_t longest);

  /// Logits of the token that follows each text, float [texts, V] on the CPU. From call to call the
  /// texts are the same, each longer by a token.
  at::Tensor operator()(const std::vector<Text>& texts);
  /// Leaves out the text at `index`, whose place the last one takes, of so many.
  void remove(size_t index, size_t texts);

 private:
  /// [texts, V]; undefined on all but a pipeline's last stage.
  at::Tensor recomputed(const std::vector<Text>& windows);
  at::Tensor continued(const std::vector<Text>& windows);

  const RankModel& model_;
  amp::Autocast autocast_;
  nn::IncrementalDecoder* decoder_;  // null: the model is none
  std::optional<nn::KeyValueCache> cache_;
};

}  // namespace brim::train
