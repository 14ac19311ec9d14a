#include "framework/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace brim {
namespace {

/// Bytes of the UTF-8 character at the beginning of the text; 0 where there is none. Overlong and
/// surrogate forms count as characters: no terminal reads a control character in them.
size_t utf8_size(std::string_view text) {
  const auto byte = static_cast<uint8_t>(text.front());
  const size_t size = byte < 0x80                   ? 1
                      : byte >= 0xc2 && byte < 0xe0 ? 2
                      : byte >= 0xe0 && byte < 0xf0 ? 3
                      : byte >= 0xf0 && byte < 0xf5 ? 4
                                                    : 0;
  if (size == 0 || size > text.size()) return 0;
  for (const char next : text.substr(1, size - 1)) {
    if ((static_cast<uint8_t>(next) & 0xc0) != 0x80) return 0;
  }
  return size;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;
}

std::string escape(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t size = utf8_size(text);
    const std::string_view character = text.substr(0, size == 0 ? 1 : size);
    text.remove_prefix(character.size());
    if (size == 1 && kept.find(character) != std::string_view::npos) {
      result += character;
    } else if (size == 0 || is_control(character)) {
      for (const char byte : character) {
        fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<uint8_t>(byte));
      }
    } else {
      result += character;
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escape(text, ""); }

std::string printable_lines(std::string_view text) { return escape(text, "\n\t"); }

std::string shown_address(const std::string& address) {
  if (!address.starts_with("http://") && !address.starts_with("https://")) return address;
  std::string shown = address.substr(0, address.find_first_of("?#"));
  const size_t host = shown.find("//") + 2;
  const size_t at = shown.substr(0, shown.find('/', host)).rfind('@');
  if (at != std::string::npos && at >= host) shown.erase(host, at + 1 - host);
  return shown;
}

std::string without_secrets(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t start = std::min(text.find("http"), text.size());
    const size_t end = std::min(text.find_first_of(" \t\r\n\"'`", start), text.size());
    result += text.substr(0, start);
    result += shown_address(std::string(text.substr(start, end - start)));
    text.remove_prefix(end);
  }
  return result;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "+,-./:=@_%";
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  });
  if (is_plain) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace brim
