#include "framework/train/inference/sample_text.h"

#include <optional>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/distributed/fully_sharded.h"
#include "framework/text/tokenizer_files.h"
#include "framework/text/unicode.h"
#include "framework/train/inference/generate.h"

namespace brim::train {

SampleText::SampleText(Prompt prompt, const recipe::Slot<data::SourceConfig>& source, uint64_t seed)
    : prompt_(std::move(prompt)), seed_(seed) {
  if (prompt_.text.empty()) return;
  const auto folder = source->tokenizer_folder();
  if (folder.empty()) {
    log::warning("train.prompt has no effect: data of kind \"{}\" have no tokenizer",
                 source.selected());
    return;
  }
  tokenizer_ = text::open_tokenizer(folder);
  ids_ = tokenizer_->encode_prompt(prompt_.text, "train.prompt");
}

std::string SampleText::write(RankModel& model, optim::Ema* ema) const {
  if (tokenizer_ == nullptr) return "";
  std::optional<optim::Ema::Swap> averaged;
  if (ema != nullptr) averaged.emplace(*ema);
  std::string text;
  std::optional<distributed::FullySharded::Evaluation> sharded;
  if (model.sharded) sharded.emplace(*model.sharded);
  try {
    const auto found = generate(model, {ids_},
                                {.max_tokens = prompt_.max_tokens,
                                 .seed = seed_,
                                 .end = tokenizer_->end_of_text(),
                                 .ids = tokenizer_->vocabulary()});
    text = text::well_formed(prompt_.text + tokenizer_->decode(found.front()));
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped && error.status() != Exit::kNumeric) throw;
  }
  model.module->train();
  return text;
}

}  // namespace brim::train
