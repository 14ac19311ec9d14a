// tokenizer.json, the one file in which the packages `tokenizers` and transformers keep a
// tokenizer.
#pragma once

#include <string>
#include <string_view>

namespace brim::text {

/// The contents of a tokenizer's files; a text is empty where it has no such file.
struct TokenizerTexts {
  std::string vocabulary;  // vocab.json
  std::string merges;      // merges.txt
};

/// The same tokenizer in GPT-2's two files, its added tokens among the vocabulary. Throws
/// Error(kData), naming `where`, for anything but GPT-2's kind: byte-level BPE that splits text by
/// GPT-2's pattern, without a normalizer.
TokenizerTexts split_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace brim::text
