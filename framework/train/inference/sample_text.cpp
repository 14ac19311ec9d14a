#include "framework/train/inference/sample_text.h"

#include <optional>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/text/tokenizer_files.h"
#include "framework/text/unicode.h"
#include "framework/train/inference/generate.h"

namespace brim::train {
SampleText::SampleText(const JobConfig& job) : seed_(static_cast<uint64_t>(job.run.seed)) {
  prompt_ = job.train.task->prompt();
  if (prompt_.text.empty()) return;
  const auto folder = job.data.source->tokenizer_folder();
  if (folder.empty()) {
    log::warning("train.prompt has no effect: data of kind \"{}\" have no tokenizer",
                 job.data.source.selected());
    return;
  }
  tokenizer_ = text::open_tokenizer(folder);
  ids_ = tokenizer_->encode_prompt(prompt_.text, "train.prompt");
}

std::string SampleText::write(TrainingComponents& components) const {
  if (tokenizer_ == nullptr) return "";
  std::optional<optim::Ema::Swap> averaged;
  if (components.ema) averaged.emplace(*components.ema);
  std::string text;
  std::optional<distributed::FullySharded::Evaluation> sharded;
  if (components.sharded) sharded.emplace(*components.sharded);
  try {
    const auto found = generate(components, {ids_},
                                {.max_tokens = prompt_.max_tokens,
                                 .seed = seed_,
                                 .end = tokenizer_->end_of_text(),
                                 .ids = tokenizer_->vocabulary()});
    text = text::well_formed(prompt_.text + tokenizer_->decode(found.front()));
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped && error.status() != Exit::kNumeric) throw;
  }
  components.model->train();
  return text;
}

}  // namespace brim::train
