#include "framework/experiment/report/html.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

#include "framework/base/units.h"

namespace brim::experiment {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// The length of the UTF-8 sequence that `text` begins with; 0 where it begins with none.
/// Table 3-7 of the Unicode standard.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    return lead == 0xED && byte(1) > 0x9F ? 0 : 3;
  }
  if (lead < 0xF0 || lead > 0xF4 || !follows(1) || !follows(2) || !follows(3)) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  return lead == 0xF4 && byte(1) > 0x8F ? 0 : 4;
}

/// Calls take(piece) for each character of `text`.
template <class Take>
void for_each_character(std::string_view text, Take take) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool is_control = (first < 0x20 && first != '\t' && first != '\n') || first == 0x7F;
    take(length == 0 || is_control ? kReplacement : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for_each_character(text, [&](std::string_view character) {
    switch (character[0]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += character;
    }
  });
  return escaped;
}

std::string script_string(std::string_view text) {
  std::string quoted = "\"";
  for_each_character(text, [&](std::string_view character) {
    const char c = character[0];
    const bool is_line_end = character == "\xE2\x80\xA8" || character == "\xE2\x80\xA9";
    if (is_line_end) {
      quoted += character == "\xE2\x80\xA8" ? "\\u2028" : "\\u2029";
    } else if (c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == '\n' ||
               c == '\t') {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += character;
    }
  });
  return quoted + '"';
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t at) -> uint32_t {
      return i + at < bytes.size() ? static_cast<unsigned char>(bytes[i + at]) : 0U;
    };
    const uint32_t three = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t digit = 0; digit < 4; ++digit) {
      const bool is_padding = i + digit > bytes.size();
      text += is_padding ? '=' : kDigits[three >> (18 - 6 * digit) & 63U];
    }
  }
  return text;
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 64> text{};  // a page has tens of thousands of them: fmt takes ten times as long
  const auto [end, code] = std::to_chars(text.data(), text.data() + text.size(), value,
                                         std::chars_format::general, digits);
  return code == std::errc() ? std::string(text.data(), end) : "null";
}

std::string readable_number(double value) {
  if (!std::isfinite(value)) return "none";
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15) {
    return format_count(std::llround(value));
  }
  return format_number(value);
}

}  // namespace brim::experiment
