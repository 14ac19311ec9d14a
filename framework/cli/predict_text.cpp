#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/cli/predict.h"
#include "framework/text/text_file.h"
#include "framework/text/tokenizer_files.h"
#include "framework/text/unicode.h"
#include "framework/train/inference/generate.h"

namespace brim::cli {
namespace {

constexpr size_t kMaxText = 1 << 20;  // bytes of a prompt

using Strings = std::vector<std::string>;

struct Prompt {
  std::string name;  // empty: given on the command line
  std::string text;
  std::vector<int32_t> ids;
};

Prompt read_prompt(const std::string& name, const text::Tokenizer& tokenizer) {
  Prompt prompt{name, "", {}};
  text::TextFile file(name);
  while (prompt.text.size() <= kMaxText && file.read(prompt.text, kMaxText)) {
  }
  if (prompt.text.empty() || prompt.text.size() > kMaxText) {
    throw Error(Exit::kData, "{}: expected 1 to {} bytes of text, found {}", name, kMaxText,
                prompt.text.empty() ? "none" : "more");
  }
  if (prompt.text.find('\0') != std::string::npos) {
    throw Error(Exit::kData, "{}: expected text, found bytes of something else", name);
  }
  prompt.ids = tokenizer.encode_prompt(prompt.text, name);
  return prompt;
}

/// Those of --prompt, then those of files; files that can't be read go to `bad`.
std::vector<Prompt> read_prompts(const std::vector<std::string>& files,
                                 const cxxopts::ParseResult& options,
                                 const text::Tokenizer& tokenizer, Strings& bad) {
  std::vector<Prompt> prompts;
  if (options.count("prompt") != 0) {
    for (const auto& text : options["prompt"].as<Strings>()) {
      prompts.push_back({"", text, tokenizer.encode_prompt(text, "--prompt")});
    }
  }
  for (const auto& name : files) {
    try {
      prompts.push_back(read_prompt(name, tokenizer));
    } catch (const Error& error) {
      if (error.status() != Exit::kData) throw;
      log::warning("skipped: {}", error.what());
      bad.push_back(name);
    }
  }
  return prompts;
}

std::unique_ptr<text::Tokenizer> open_tokenizer(const train::TrainedModel& trained,
                                                const cxxopts::ParseResult& options) {
  if (options.count("tokenizer") != 0) {
    if (text::has_tokenizer(trained.tokenizer)) {
      log::warning("--tokenizer takes the place of the run's own, {}", trained.tokenizer.string());
    }
    return text::open_tokenizer(options["tokenizer"].as<std::string>());
  }
  if (trained.tokenizer.empty()) {
    throw Error(Exit::kRecipe,
                "[data] kind = \"{}\" has no tokenizer: name a folder that trainer data tokenize "
                "has made, by --tokenizer",
                trained.job.data.source.selected());
  }
  return text::open_tokenizer(trained.tokenizer);
}

train::GenerateOptions read_options(const cxxopts::ParseResult& options,
                                    const text::Tokenizer& tokenizer) {
  train::GenerateOptions how{
      .max_tokens = integer_option(options, "tokens", 1, 1 << 20),
      .temperature = options["temperature"].as<double>(),
      .top_k = integer_option(options, "top-k", 0, 1 << 30),
      .seed = static_cast<uint64_t>(integer_option(options, "seed", 0, int64_t{1} << 62)),
      .end = tokenizer.end_of_text(),
      .ids = tokenizer.vocabulary()};
  if (!(how.temperature >= 0 && how.temperature <= 100)) {
    throw UsageError("--temperature: expected a number from 0 to 100, found {}", how.temperature);
  }
  return how;
}

}  // namespace

std::vector<std::string> continue_texts(train::TrainedModel& trained,
                                        const std::vector<std::string>& files,
                                        const cxxopts::ParseResult& options, int64_t batch) {
  if (files.empty() && options.count("prompt") == 0) {
    throw UsageError("no text to continue: give --prompt or files; see trainer help predict");
  }
  const auto tokenizer = open_tokenizer(trained, options);
  const train::GenerateOptions how = read_options(options, *tokenizer);
  Strings bad;
  const std::vector<Prompt> prompts = read_prompts(files, options, *tokenizer, bad);
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(batch)) {
    const size_t end = std::min(prompts.size(), first + static_cast<size_t>(batch));
    std::vector<std::vector<int32_t>> ids;
    for (size_t i = first; i < end; ++i) ids.push_back(prompts[i].ids);
    const auto found =
        train::generate(trained.components.model, ids, how, static_cast<int64_t>(first));
    for (size_t i = first; i < end; ++i) {
      const std::string more = tokenizer->decode(found[i - first]);
      if (options.count("json") == 0) {
        const std::string whole = text::well_formed(prompts[i].text + more);
        fmt::print("{}\n", ::isatty(STDOUT_FILENO) != 0 ? printable_lines(whole) : whole);
        continue;
      }
      nlohmann::json json = {
          {"prompt", prompts[i].text}, {"continuation", more}, {"tokens", found[i - first]}};
      if (!prompts[i].name.empty()) json["input"] = prompts[i].name;
      fmt::print("{}", json_line(json));
    }
    flush_output();
  }
  return bad;
}

}  // namespace brim::cli
