// What a language model writes while it learns.
#pragma once

#include <memory>
#include <string>

#include "framework/data/config.h"
#include "framework/optim/ema.h"
#include "framework/recipe/registry.h"
#include "framework/text/tokenizer.h"
#include "framework/train/rank_model.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

/// A prompt, to be continued as training continues.
class SampleText {
 public:
  /// Reads the prompt by the tokenizer that the folder of the training data's `source` holds.
  /// Throws Error(kData) where that folder has none, or it can't express the prompt. Logs where the
  /// data are of a kind that has no tokenizer, and writes nothing then.
  SampleText(Prompt prompt, const recipe::Slot<data::SourceConfig>& source, uint64_t seed);

  /// The prompt and how the model continues, in valid UTF-8; empty without a prompt, after a stop
  /// was asked for, and where the model's logits are not finite. The same model writes the same
  /// text. The model is in training mode afterwards.
  std::string write(RankModel& model, optim::Ema* ema) const;

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: nothing is written
  Prompt prompt_;
  std::vector<int32_t> ids_;  // its tokens
  uint64_t seed_ = 0;
};

}  // namespace brim::train
