#include "framework/train/tasks/sample_text.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/data/sources/tokens.h"
#include "framework/text/tokenizer_files.h"
#include "framework/train/tasks/generate.h"
#include "framework/train/tasks/language_modeling.h"

namespace brim::train {
namespace {

/// Valid UTF-8: a model of bytes writes others too, and U+FFFD stands for those.
std::string readable(const std::string& text) {
  using nlohmann::json;
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

}  // namespace

SampleText::SampleText(const JobConfig& job) : seed_(static_cast<uint64_t>(job.run.seed)) {
  const auto* task = dynamic_cast<const LanguageModelingConfig*>(&*job.train.task);
  if (task == nullptr || task->prompt.empty()) return;
  const auto* tokens = dynamic_cast<const data::TokensConfig*>(&*job.data.source);
  if (tokens == nullptr) {
    log::warning("train.prompt has no effect: data of kind \"{}\" have no tokenizer",
                 job.data.source.selected());
    return;
  }
  tokenizer_ = text::open_tokenizer(tokens->train.parent_path());
  prompt_ = task->prompt;
  ids_ = tokenizer_->encode(prompt_);
  most_tokens_ = task->prompt_tokens;
}

std::string SampleText::write(Parts& parts) const {
  if (tokenizer_ == nullptr) return "";
  std::optional<optim::Ema::Swap> averaged;
  if (parts.ema) averaged.emplace(*parts.ema);
  std::string text;
  try {
    const auto found =
        generate(parts, {ids_},
                 {.most_tokens = most_tokens_, .seed = seed_, .end = tokenizer_->end_of_text()});
    text = readable(prompt_ + tokenizer_->decode(found.front()));
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped) throw;
  }
  parts.model->train();
  return text;
}

}  // namespace brim::train
