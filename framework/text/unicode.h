// UTF-8, and what GPT-2's tokenizer asks of a character: letter, number, white space or neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace brim::text {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// The class of a code point below 0x110000, by the Unicode version of unicode_ranges.h.
CharClass class_of(char32_t point);

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 0;  // 0: no well-formed UTF-8 begins here
};

/// The code point at the start of `text`, which isn't empty. Well-formed as in Unicode's table 3-7:
/// no surrogates, nothing longer than needed, nothing from 0x110000 on.
CodePoint first_code_point(std::string_view text);

/// `point` is below 0x110000.
void append_utf8(std::string& text, char32_t point);

/// Where the first byte is that belongs to no well-formed UTF-8; text.size() where none is.
size_t well_formed_bytes(std::string_view text);

/// `text` with U+FFFD in the place of each byte that belongs to no well-formed UTF-8.
std::string well_formed(std::string_view text);

/// How many bytes at the end are the beginning of a character that is cut off: 0 to 3.
size_t cut_off_bytes(std::string_view text);

}  // namespace brim::text
