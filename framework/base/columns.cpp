#include "framework/base/columns.h"

#include <algorithm>

namespace brim {

size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string pad_left(const std::string& text, size_t width) {
  const size_t own = width_of(text);
  return std::string(width > own ? width - own : 0, ' ') + text;
}

std::string pad_right(const std::string& text, size_t width) {
  const size_t own = width_of(text);
  return text + std::string(width > own ? width - own : 0, ' ');
}

std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t widest) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], std::min(width_of(row[i]), widest));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += pad_right(row[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace brim
