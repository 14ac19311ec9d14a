// What a language model writes while it learns.
#pragma once

#include <memory>
#include <string>

#include "framework/text/tokenizer.h"
#include "framework/train/job.h"
#include "framework/train/parts.h"

namespace brim::train {

/// The prompt of the job's task, to be gone on with as training goes on.
class SampleText {
 public:
  /// Reads the prompt by the tokenizer that the training data's folder holds. Throws Error(kData)
  /// where that folder has none, or it can't express the prompt. Says aloud where the data are of a
  /// kind that has no tokenizer, and writes nothing then.
  explicit SampleText(const JobConfig& job);

  /// The prompt and how the model goes on, in valid UTF-8; empty without a prompt, and after a stop
  /// was asked for. The same model writes the same text. The model is in training mode afterwards.
  std::string write(Parts& parts) const;

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: nothing is written
  Prompt prompt_;
  std::vector<int32_t> ids_;  // its tokens
  uint64_t seed_ = 0;
};

}  // namespace brim::train
