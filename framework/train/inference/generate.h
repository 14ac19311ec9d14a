// Text from a language model: tokens that follow a prompt, one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/train/rank_model.h"

namespace brim::train {

struct GenerateOptions {
  int64_t max_tokens = 64;   // of each continuation
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // only so many of the likeliest; 0: all
  uint64_t seed = 0;
  int32_t end = -1;  // the token that ends a text and is not part of it; -1: none
  int64_t ids = 0;   // of the tokenizer: a larger vocabulary's others are never drawn; 0: all
};

/// A continuation for each prompt, which are computed together. A prompt's depends on the seed and
/// on its number, first_number + its index, and not on the other prompts, but for the rounding of
/// sums, which in bf16 can change a token. The model sees each text by its window (window_of() in
/// next_logits.h); `model` takes tokens, and is left in evaluation mode. Throws Error(kData) for an
/// empty prompt or a token beyond the vocabulary, Error(kNumeric) for logits that are not finite,
/// and Error(kStopped) on request.
std::vector<std::vector<int32_t>> generate(RankModel& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options,
                                           int64_t first_number = 0);

}  // namespace brim::train
