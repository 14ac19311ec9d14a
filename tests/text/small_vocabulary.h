// A vocabulary as GPT-2's, with a few merges, for tests without Python and for fuzzers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/text/gpt2_tokenizer.h"
#include "framework/text/unicode.h"
#include "framework/text/vocabulary.h"

namespace brim::text::testing {

struct SmallVocabulary {
  std::string vocabulary;
  std::string merges;
};

/// The 256 bytes, then what the merges make, then <|endoftext|>.
inline SmallVocabulary small_vocabulary() {
  // "Ġ" is the space, "Ċ" the end of a line, "Ã©" is é.
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},  {"l", "l"},   {"Ġ", "w"}, {"he", "ll"}, {"hell", "o"}, {"Ã", "©"}, {"a", "a"},
      {"aa", "a"}, {"aa", "aa"}, {"Ġ", "Ġ"}, {"Ċ", "Ċ"},   {"'", "s"},    {"1", "2"}};
  std::vector<std::string> tokens;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    append_utf8(tokens.emplace_back(), is_visible ? byte : next++);
  }
  SmallVocabulary result;
  result.merges = "#version: 0.2\n";
  for (const auto& [left, right] : merges) {
    tokens.push_back(left + right);
    result.merges += left + " " + right + "\n";
  }
  tokens.emplace_back(kEndOfText);
  result.vocabulary = print_vocabulary(tokens);
  return result;
}

inline Gpt2Tokenizer small_tokenizer() {
  const SmallVocabulary files = small_vocabulary();
  return {files.vocabulary, "vocab.json", files.merges, "merges.txt"};
}

}  // namespace brim::text::testing
