// What a language model writes while it learns.
#pragma once

#include <memory>
#include <string>

#include "framework/text/tokenizer.h"
#include "framework/train/components.h"
#include "framework/train/job.h"

namespace brim::train {

/// The prompt of the job's task, to be continued as training continues.
class SampleText {
 public:
  /// Reads the prompt by the tokenizer that the training data's folder holds. Throws Error(kData)
  /// where that folder has none, or it can't express the prompt. Logs where the data are of a
  /// kind that has no tokenizer, and writes nothing then.
  explicit SampleText(const JobConfig& job);

  /// The prompt and how the model continues, in valid UTF-8; empty without a prompt, after a stop was
  /// asked for, and where the model's logits are not finite. The same model writes the same text. The
  /// model is in training mode afterwards.
  std::string write(TrainingComponents& components) const;

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: nothing is written
  Prompt prompt_;
  std::vector<int32_t> ids_;  // its tokens
  uint64_t seed_ = 0;
};

}  // namespace brim::train
