// Tables for people, in a terminal: columns side by side.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace brim {

/// Characters of UTF-8.
size_t width_of(const std::string& text);
/// `text` with blanks up to `width` characters of UTF-8, before it or after it.
std::string pad_left(const std::string& text, size_t width);
std::string pad_right(const std::string& text, size_t width);

/// A line for each row, its cells in columns two blanks apart. No cell makes a column wider than
/// `widest`, and the last one is not filled up.
std::string in_columns(const std::vector<std::vector<std::string>>& rows,
                       size_t widest = std::numeric_limits<size_t>::max());

}  // namespace brim
