#include "framework/text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "framework/text/unicode_ranges.h"

namespace brim::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// Those of the first code points.
template <class Classes>
constexpr void fill_in(Classes& classes) {
  const auto set = [&](std::span<const CodePointRange> ranges, CharClass kind) {
    for (const auto& [first, last] : ranges) {
      for (size_t point = first; point <= last && point < classes.size(); ++point) {
        classes[point] = kind;
      }
    }
  };
  std::ranges::fill(classes, CharClass::kOther);
  set(kLetters, CharClass::kLetter);
  set(kNumbers, CharClass::kNumber);
  set(kSpaces, CharClass::kSpace);
}

constexpr auto kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  fill_in(classes);
  return classes;
}();

/// What the first byte of a sequence says of it: its length, and the range of its second byte.
struct Lead {
  size_t bytes = 0;  // 0: begins nothing
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead lead_of(uint8_t first) {
  if (first >= 0xC2 && first <= 0xDF) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  if (first >= 0xF1 && first <= 0xF3) return {4};
  return {};
}

bool may_follow(const Lead& lead, size_t place, uint8_t byte) {
  return place == 1 ? byte >= lead.second_low && byte <= lead.second_high
                    : byte >= 0x80 && byte <= 0xBF;
}

/// Eight bytes that are all ASCII?
bool is_ascii_word(const char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return (word & 0x8080808080808080U) == 0;
}

}  // namespace

CharClass class_of(char32_t point) {
  if (point < kAsciiClasses.size()) return kAsciiClasses[point];
  static const std::vector<CharClass> classes = [] {
    std::vector<CharClass> all(kCodePoints);
    fill_in(all);
    return all;
  }();
  return classes[point];
}

CodePoint first_code_point(std::string_view text) {
  const uint8_t first = byte_at(text, 0);
  if (first < 0x80) return {first, 1};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0 || text.size() < lead.bytes) return {};
  char32_t value = first & (0xFFU >> (lead.bytes + 1));
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (!may_follow(lead, i, byte_at(text, i))) return {};
    value = value << 6 | (byte_at(text, i) & 0x3FU);
  }
  return {value, lead.bytes};
}

void append_utf8(std::string& text, char32_t point) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto add_rest = [&](int shift) { add(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xC0 | point >> 6);
    add_rest(0);
  } else if (point < 0x10000) {
    add(0xE0 | point >> 12);
    add_rest(6);
    add_rest(0);
  } else {
    add(0xF0 | point >> 18);
    add_rest(12);
    add_rest(6);
    add_rest(0);
  }
}

size_t well_formed_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size() && is_ascii_word(text.data() + at)) {
      at += 8;
      continue;
    }
    const CodePoint point = first_code_point(text.substr(at));
    if (point.bytes == 0) break;
    at += point.bytes;
  }
  return at;
}

std::string well_formed(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t good = well_formed_bytes(text);
    result.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    append_utf8(result, U'\uFFFD');
    text.remove_prefix(1);
  }
  return result;
}

size_t cut_off_bytes(std::string_view text) {
  for (size_t count = 1; count <= std::min<size_t>(3, text.size()); ++count) {
    const size_t start = text.size() - count;
    const Lead lead = lead_of(byte_at(text, start));
    if (lead.bytes == 0) continue;  // a byte that follows another, perhaps
    if (lead.bytes <= count) return 0;
    for (size_t i = 1; i < count; ++i) {
      if (!may_follow(lead, i, byte_at(text, start + i))) return 0;
    }
    return count;
  }
  return 0;
}

}  // namespace brim::text
