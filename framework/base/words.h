// Words that a user has typed: lists of them, and what a mistyped one was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brim {

/// The pieces between commas, of which there is one more than there are commas.
std::vector<std::string_view> split(std::string_view list);

/// The pieces between commas that stand in no quotes and no brackets.
std::vector<std::string> split_values(std::string_view list);

/// With small letters in place of capitals, of ASCII.
std::string lower_case(std::string_view word);

/// For "did you mean …?": the candidate nearest to `word` by edit distance, or "" where none is
/// near.
std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace brim
