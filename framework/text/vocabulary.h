// Vocabulary files: {"token": id, …} as in GPT-2's vocab.json, and merges.txt. They come from
// outside: everything is checked, and errors name the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brim::text {

/// The largest file that is read, and the most tokens that it may hold.
inline constexpr int64_t kMaxVocabularyBytes = int64_t{64} << 20;
inline constexpr size_t kMaxTokens = size_t{1} << 22;

/// The tokens in the order of their ids, as they are written in the file: one JSON object whose
/// values are 0 … n - 1, each once. Throws Error(kData), naming `where`.
std::vector<std::string> parse_vocabulary(std::string_view json, const std::string& where);

/// A vocabulary file of these tokens, which are UTF-8.
std::string print_vocabulary(const std::vector<std::string>& tokens);

/// A line of merges.txt: two tokens that become one. The views point into the text.
struct Merge {
  std::string_view left;
  std::string_view right;
  int64_t line;  // from 1
};

/// The merges in the order of the file, the first the most urgent. A first line that begins with
/// "#version" and empty lines are left out. Throws Error(kData) for a line that isn't two words.
std::vector<Merge> parse_merges(std::string_view text, const std::string& where);

}  // namespace brim::text
