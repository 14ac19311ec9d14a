#include "framework/recipe/text.h"

#include <fmt/format.h>

namespace brim::recipe {

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_c1 = c == '\xC2' && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (is_c1) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(text[++i]));
      continue;
    }
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\t':
        result += "\\t";
        break;
      default: {
        const auto code = static_cast<unsigned char>(c);
        if (code < 0x20 || code == 0x7F) {
          result += fmt::format("\\u{:04X}", code);
        } else {
          result += c;
        }
      }
    }
  }
  return result + '"';
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // "n": inf and nan
  return text;
}

std::string range_text(const Range& range) {
  const bool has_low = range.low != any_number().low;
  const bool has_high = range.high != any_number().high;
  const std::string low = fmt::format("{} {}", range.low_open ? "above" : "at least", range.low);
  const std::string high = fmt::format("{} {}", range.high_open ? "below" : "at most", range.high);
  if (!has_low && !has_high) return "";
  if (!has_high) return low;
  if (!has_low) return high;
  if (!range.low_open && !range.high_open) {
    return fmt::format("from {} to {}", range.low, range.high);
  }
  return low + " and " + high;
}

std::string words_text(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + toml_string(word);
  return text;
}

std::filesystem::path resolve(const std::filesystem::path& path,
                              const std::filesystem::path& folder) {
  const std::string& text = path.native();
  if (text.empty() || text.starts_with("http://") || text.starts_with("https://")) return path;
  return std::filesystem::absolute(folder / path).lexically_normal();
}

}  // namespace brim::recipe
