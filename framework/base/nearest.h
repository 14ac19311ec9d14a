// What a mistyped word was meant to be, for "did you mean …?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brim {

/// The candidate nearest to `word` by edit distance, or "" where none is near.
std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace brim
