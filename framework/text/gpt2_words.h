// How GPT-2 splits text before it merges bytes: the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// of its encoder.py (https://github.com/openai/gpt-2), written out by hand. A byte that is no
// well-formed UTF-8 counts as a character that is neither letter, number nor white space.
#pragma once

#include <cstddef>
#include <string_view>

namespace brim::text {

/// The length of the word that `text`, which isn't empty, begins with. The text is taken to end
/// where `text` ends.
size_t first_word(std::string_view text);

/// The last place, not the end, where text that continues can be cut into two parts that are split
/// by themselves as the whole would be; 0 where there is none. Such places lie between characters
/// of two classes, but not behind white space, nor between a sign and a letter.
size_t last_cut_between_words(std::string_view text);

}  // namespace brim::text
