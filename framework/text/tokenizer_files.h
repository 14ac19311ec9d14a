// Tokenizers by name, from their files or from a folder that tokenize() wrote.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "framework/text/tokenizer.h"
#include "framework/text/tokenizer_json.h"

namespace brim::text {

inline constexpr std::string_view kVocabularyName = "vocab.json";
inline constexpr std::string_view kMergesName = "merges.txt";

struct TokenizerFiles {
  std::string name;                  // bytes, chars or gpt2
  std::filesystem::path vocabulary;  // empty: not given
  std::filesystem::path merges;      // empty for gpt2: the vocabulary is a tokenizer.json
};

/// Throws Error(kRecipe) for a name there isn't or files that it doesn't take or lacks, and
/// Error(kData) for files that can't be read. `chars` needs its vocabulary here.
TokenizerTexts read_tokenizer(const TokenizerFiles& files);

/// Of what read_tokenizer() gave for the files. Throws Error(kData), naming them, where it is
/// damaged.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerFiles& files, const TokenizerTexts& texts);

/// Both. Throws as they do.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files);

/// The tokenizer of a folder of token files. Throws Error(kData).
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& folder);

/// Whether there seems to be one, for open_tokenizer() to look at.
bool has_tokenizer(const std::filesystem::path& folder);

/// Copies a folder's tokenizer, without the tokens, to the folder `to`, which is made. Throws
/// Error(kData) where it can't be read, Error(kResource) where `to` can't be written.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace brim::text
